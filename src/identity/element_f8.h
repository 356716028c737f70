// fp8 e4m3 as an element type. It stands beside the enumeration because only recurrent state has
// it: no KV block and no public interface does. Thread rule: a constant.
#ifndef BATON_IDENTITY_ELEMENT_F8_H_
#define BATON_IDENTITY_ELEMENT_F8_H_

#include "identity/layout.h"

namespace baton {

// One byte: sign, 4 bits of exponent, 3 of fraction; no infinity, 0x7f and 0xff are NaN. Its name
// is "fp8_e4m3".
inline constexpr ElementType kElementF8E4M3 = ElementType{4};

}  // namespace baton

#endif  // BATON_IDENTITY_ELEMENT_F8_H_
