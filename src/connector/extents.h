// What every connector asks of the extents of a pull before it moves a byte. Thread rule: free
// functions.
#ifndef BATON_CONNECTOR_EXTENTS_H_
#define BATON_CONNECTOR_EXTENTS_H_

#include <span>

#include "base/status.h"
#include "connector/connector.h"

namespace baton {

// InvalidArgument if an extent is empty, not of its destination's size, or names a part that
// another one names too.
Status CheckExtents(std::span<const ReadExtent> extents);

}  // namespace baton

#endif  // BATON_CONNECTOR_EXTENTS_H_
