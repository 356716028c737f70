// Constants of the elementary functions, shared by the scalar and the vector forms. The
// polynomials are minimax fits of relative error made for this project (weighted least squares
// iterated to equal ripple in 80-bit arithmetic, then rounded to f32). Thread rule: constants.
#ifndef BATON_KERNEL_POLYNOMIALS_H_
#define BATON_KERNEL_POLYNOMIALS_H_

#include <cstdint>

namespace baton::kernel {

inline constexpr float kLog2E = 0x1.715476p+0f;
inline constexpr float kLn2Hi = 0x1.62e430p-1f;     // ln 2 rounded to f32
inline constexpr float kLn2Lo = -0x1.05c610p-29f;   // ln 2 - kLn2Hi
inline constexpr float kLn2LogHi = 0x1.62e000p-1f;  // 13 bits: k * kLn2LogHi is exact
inline constexpr float kLn2LogLo = 0x1.0bfbe8p-15f;
// Adding it rounds to an integer, to nearest even, in the low bits of the sum.
inline constexpr float kRoundMagic = 0x1.8p23f;
inline constexpr uint32_t kRoundMagicBits = 0x4b400000u;
inline constexpr float kExpMax = 89.0f;    // exp overflows from 88.73
inline constexpr float kExpMin = -105.0f;  // exp is 0 below -104

inline constexpr uint32_t kInfBits = 0x7f800000u;
inline constexpr uint32_t kNanBits = 0x7fc00000u;
inline constexpr uint32_t kSqrtHalfBits = 0x3f3504f3u;

// exp(r) = 1 + r + r^2 q(r), |r| <= ln(2) / 2; fit error 2^-28.2.
inline constexpr float kExpPoly[5] = {0x1.fffffcp-2f, 0x1.555490p-3f, 0x1.5558f8p-5f,
                                      0x1.123b04p-7f, 0x1.6a224ep-10f};
// log1p(f) = f - f^2 / 2 + f^3 p(f), sqrt(1/2) <= 1 + f <= sqrt(2); fit error 2^-27.3.
inline constexpr float kLog1pPoly[8] = {0x1.555554p-2f,  -0x1.000226p-2f, 0x1.99a028p-3f,
                                        -0x1.54726ap-3f, 0x1.22d74ap-3f,  -0x1.0d80a4p-3f,
                                        0x1.056e86p-3f,  -0x1.3901b8p-4f};
// tanh(x) = x + x^3 p(x^2), |x| <= 0.625; fit error 2^-27.8.
inline constexpr float kTanhPoly[5] = {-0x1.555534p-2f, 0x1.110760p-3f, -0x1.b8430cp-5f,
                                       0x1.524e52p-6f, -0x1.768436p-8f};

// Phi(-a) = exp(-a^2 / 2) * t * g(t), t = 1 / (1 + kGeluP a), 0 <= a <= 14.6, Phi the normal
// distribution function; fit error 2^-26.
inline constexpr float kGeluP = 0x1.0f5c28p-2f;
inline constexpr float kGeluPoly[9] = {0x1.b11c9ap-4f, 0x1.af3042p-4f,  0x1.a3f356p-4f,
                                       0x1.f3c600p-5f, 0x1.171c10p-3f,  -0x1.d2776ap-4f,
                                       0x1.b9863ep-3f, -0x1.251c38p-3f, 0x1.f52036p-6f};
// 2 sqrt(2 / pi), and 0.044715 times it.
inline constexpr float kGeluTanh1 = 0x1.988454p+0f;
inline constexpr float kGeluTanh3 = 0x1.2444f2p-4f;

}  // namespace baton::kernel

#endif  // BATON_KERNEL_POLYNOMIALS_H_
