// Guard bands: bytes before and after a unit that nobody may write, filled with a canary that is a
// function of the address, so that a band copied to another place is as wrong as an overwritten
// one. They find a writer that ran past its unit when the unit is sealed, copied, moved or freed;
// they cannot find one that jumped over them.
// Thread rule: pure functions over bytes.
#ifndef BATON_MEMORY_GUARD_H_
#define BATON_MEMORY_GUARD_H_

#include <cstdint>
#include <string_view>

#include "base/bytes.h"
#include "base/status.h"

namespace baton::memory_internal {

// `offset` is where the band starts in the arena; both are multiples of 8.
void PaintGuard(MutableByteSpan band, uint64_t offset);
// kInternal naming `unit`, the side ("before" or "after") and the first wrong byte of the band.
Status CheckGuard(ByteSpan band, uint64_t offset, std::string_view unit, std::string_view side);

}  // namespace baton::memory_internal

#endif  // BATON_MEMORY_GUARD_H_
