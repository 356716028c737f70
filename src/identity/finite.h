// Finds NaN and infinity by integers alone: an element is not finite exactly if all its exponent
// bits are one, and then adding one unit of the exponent carries into the sign bit. Three vector
// operations per register, no compare, no floating-point flag. Thread rule: pure functions.
#ifndef BATON_IDENTITY_FINITE_H_
#define BATON_IDENTITY_FINITE_H_

#include "base/bytes.h"
#include "identity/layout.h"

namespace baton {

// True if no element of `bytes` is NaN or infinite. `bytes` holds whole elements, at any address;
// a trailing fraction of an element makes it false.
bool AllFinite(ElementType dtype, ByteSpan bytes);

}  // namespace baton

#endif  // BATON_IDENTITY_FINITE_H_
