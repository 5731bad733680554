// Sixteen floats side by side, in whatever registers the instruction set has. Included only by files under
// simd/; everything is in an unnamed namespace, so that no copy built for one instruction set can serve
// another.
#pragma once

#include <cstdint>
#include <cstring>

#if defined(__AVX2__)
#include <immintrin.h>
#endif

namespace umpteen::UMPTEEN_ISA {
namespace {

/// What of the value lies beyond [-limit, limit].
inline float soften(float value, float limit) {
  return value > limit ? value - limit : value < -limit ? value + limit : 0.0F;
}

#if defined(__AVX512F__)

struct Lanes {
  __m512 v;
};
inline Lanes load(const float* p) { return {_mm512_loadu_ps(p)}; }
inline void store(float* p, Lanes a) { _mm512_storeu_ps(p, a.v); }
inline Lanes broadcast(float a) { return {_mm512_set1_ps(a)}; }
inline Lanes multiply_add(Lanes a, Lanes b, Lanes c) { return {_mm512_fmadd_ps(a.v, b.v, c.v)}; }
inline Lanes add(Lanes a, Lanes b) { return {_mm512_add_ps(a.v, b.v)}; }
inline float sum(Lanes a) { return _mm512_reduce_add_ps(a.v); }
inline Lanes gather(const float* p, const std::int32_t* at) {
  return {_mm512_i32gather_ps(_mm512_loadu_si512(at), p, 4)};
}
/// What of a lies beyond [-limit, limit], one limit for all lanes.
inline Lanes soften(Lanes a, float limit) {
  const __m512 high = _mm512_set1_ps(limit);
  const __m512 low = _mm512_sub_ps(_mm512_setzero_ps(), high);
  return {_mm512_sub_ps(a.v, _mm512_min_ps(_mm512_max_ps(a.v, low), high))};
}
/// b where a > 0, else 0
inline Lanes keep_positive(Lanes a, Lanes b) {
  return {_mm512_maskz_mov_ps(_mm512_cmp_ps_mask(a.v, _mm512_setzero_ps(), _CMP_GT_OQ), b.v)};
}
/// Bit i is set where a[i] > b[i]; never for a NaN.
inline std::uint32_t greater(Lanes a, Lanes b) { return _mm512_cmp_ps_mask(a.v, b.v, _CMP_GT_OQ); }
inline Lanes gather(const float* v, const std::uint16_t* places) {
  const __m256i narrow = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(places));
  return {_mm512_i32gather_ps(_mm512_cvtepu16_epi32(narrow), v, 4)};
}
inline Lanes load_half(const std::uint16_t* p) {
  return {_mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)))};
}
inline void store_half(std::uint16_t* p, Lanes a) {
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), _mm512_cvtps_ph(a.v, _MM_FROUND_TO_NEAREST_INT));
}

#elif defined(__AVX2__)

struct Lanes {
  __m256 lo, hi;
};
inline Lanes load(const float* p) { return {_mm256_loadu_ps(p), _mm256_loadu_ps(p + 8)}; }
inline void store(float* p, Lanes a) {
  _mm256_storeu_ps(p, a.lo);
  _mm256_storeu_ps(p + 8, a.hi);
}
inline Lanes broadcast(float a) { return {_mm256_set1_ps(a), _mm256_set1_ps(a)}; }
inline Lanes multiply_add(Lanes a, Lanes b, Lanes c) {
  return {_mm256_fmadd_ps(a.lo, b.lo, c.lo), _mm256_fmadd_ps(a.hi, b.hi, c.hi)};
}
inline Lanes add(Lanes a, Lanes b) { return {_mm256_add_ps(a.lo, b.lo), _mm256_add_ps(a.hi, b.hi)}; }
inline float sum(Lanes a) {
  const __m256 eight = _mm256_add_ps(a.lo, a.hi);
  const __m128 four = _mm_add_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1));
  const __m128 two = _mm_add_ps(four, _mm_movehl_ps(four, four));
  return _mm_cvtss_f32(_mm_add_ss(two, _mm_movehdup_ps(two)));
}
inline Lanes gather(const float* p, const std::int32_t* at) {
  return {_mm256_setr_ps(p[at[0]], p[at[1]], p[at[2]], p[at[3]], p[at[4]], p[at[5]], p[at[6]], p[at[7]]),
          _mm256_setr_ps(p[at[8]], p[at[9]], p[at[10]], p[at[11]], p[at[12]], p[at[13]], p[at[14]], p[at[15]])};
}
inline Lanes soften(Lanes a, float limit) {
  const __m256 high = _mm256_set1_ps(limit);
  const __m256 low = _mm256_sub_ps(_mm256_setzero_ps(), high);
  return {_mm256_sub_ps(a.lo, _mm256_min_ps(_mm256_max_ps(a.lo, low), high)),
          _mm256_sub_ps(a.hi, _mm256_min_ps(_mm256_max_ps(a.hi, low), high))};
}
inline Lanes keep_positive(Lanes a, Lanes b) {
  const __m256 zero = _mm256_setzero_ps();
  return {_mm256_and_ps(_mm256_cmp_ps(a.lo, zero, _CMP_GT_OQ), b.lo),
          _mm256_and_ps(_mm256_cmp_ps(a.hi, zero, _CMP_GT_OQ), b.hi)};
}
inline std::uint32_t greater(Lanes a, Lanes b) {
  const int lo = _mm256_movemask_ps(_mm256_cmp_ps(a.lo, b.lo, _CMP_GT_OQ));
  const int hi = _mm256_movemask_ps(_mm256_cmp_ps(a.hi, b.hi, _CMP_GT_OQ));
  return static_cast<std::uint32_t>(lo | hi << 8);
}
inline Lanes gather(const float* v, const std::uint16_t* places) {
  const __m256i lo = _mm256_cvtepu16_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(places)));
  const __m256i hi = _mm256_cvtepu16_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(places + 8)));
  return {_mm256_i32gather_ps(v, lo, 4), _mm256_i32gather_ps(v, hi, 4)};
}
inline Lanes load_half(const std::uint16_t* p) {
  return {_mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p))),
          _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p + 8)))};
}
inline void store_half(std::uint16_t* p, Lanes a) {
  _mm_storeu_si128(reinterpret_cast<__m128i*>(p), _mm256_cvtps_ph(a.lo, _MM_FROUND_TO_NEAREST_INT));
  _mm_storeu_si128(reinterpret_cast<__m128i*>(p + 8), _mm256_cvtps_ph(a.hi, _MM_FROUND_TO_NEAREST_INT));
}

#else  // four registers of four: SSE2 or NEON, by the compiler's vector types

typedef float Quad __attribute__((vector_size(16)));
struct Lanes {
  Quad v[4];
};
inline Lanes load(const float* p) {
  Lanes a;
  std::memcpy(a.v, p, sizeof a.v);
  return a;
}
inline void store(float* p, Lanes a) { std::memcpy(p, a.v, sizeof a.v); }
inline Lanes broadcast(float a) {
  const Quad q = {a, a, a, a};
  return {{q, q, q, q}};
}
inline Lanes multiply_add(Lanes a, Lanes b, Lanes c) {
  return {{a.v[0] * b.v[0] + c.v[0], a.v[1] * b.v[1] + c.v[1], a.v[2] * b.v[2] + c.v[2], a.v[3] * b.v[3] + c.v[3]}};
}
inline Lanes add(Lanes a, Lanes b) { return {{a.v[0] + b.v[0], a.v[1] + b.v[1], a.v[2] + b.v[2], a.v[3] + b.v[3]}}; }
inline float sum(Lanes a) {
  const Quad four = (a.v[0] + a.v[1]) + (a.v[2] + a.v[3]);
  return (four[0] + four[1]) + (four[2] + four[3]);
}
inline Lanes gather(const float* p, const std::int32_t* at) {
  Lanes r;
  for (int i = 0; i < 16; ++i) r.v[i / 4][i % 4] = p[at[i]];
  return r;
}
inline Lanes soften(const Lanes& a, float limit) {
  Lanes r;
  for (int i = 0; i < 16; ++i) r.v[i / 4][i % 4] = soften(a.v[i / 4][i % 4], limit);
  return r;
}
inline Lanes keep_positive(const Lanes& a, const Lanes& b) {
  Lanes r;
  for (int i = 0; i < 16; ++i) r.v[i / 4][i % 4] = a.v[i / 4][i % 4] > 0 ? b.v[i / 4][i % 4] : 0;
  return r;
}
inline std::uint32_t greater(const Lanes& a, const Lanes& b) {
  std::uint32_t mask = 0;
  for (int i = 0; i < 16; ++i) mask |= static_cast<std::uint32_t>(a.v[i / 4][i % 4] > b.v[i / 4][i % 4]) << i;
  return mask;
}
/// v[places[i]] for sixteen places
inline Lanes gather(const float* v, const std::uint16_t* places) {
  Lanes r;
  for (int i = 0; i < 16; ++i) r.v[i / 4][i % 4] = v[places[i]];
  return r;
}

#endif

/// One product and sum, rounded as multiply_add rounds.
inline float multiply_add(float a, float b, float c) {
#if defined(__FMA__)
  return __builtin_fmaf(a, b, c);
#else
  return a * b + c;
#endif
}

/// e^x to a few units in the last place, without a branch, so that loops over it become vector code. x is cut off at
/// -87 and 87, where float32 ends.
inline float exponential(float x) {
  x = x < -87.0F ? -87.0F : x;
  x = x > 87.0F ? 87.0F : x;
  // x = n ln 2 + r with |r| <= ln 2 / 2: adding 1.5 * 2^23 leaves no room for a fraction, which rounds to n.
  constexpr float kMagic = 12582912.0F;
  const float shifted = multiply_add(x, 1.44269504F, kMagic);
  const float n = shifted - kMagic;
  float r = multiply_add(n, -0.693359375F, x);  // ln 2 in two parts; the first times n is exact
  r = multiply_add(n, 2.12194440e-4F, r);
  float p = 1.9875691500e-4F;
  p = multiply_add(p, r, 1.3981999507e-3F);
  p = multiply_add(p, r, 8.3334519073e-3F);
  p = multiply_add(p, r, 4.1665795894e-2F);
  p = multiply_add(p, r, 1.6666665459e-1F);
  p = multiply_add(p, r, 5.0000001201e-1F);
  p = multiply_add(p, r * r, r) + 1.0F;
  // Times 2^n: n stands in the low bits of `shifted`, and is added to where the exponent is.
  const auto bits = __builtin_bit_cast(std::uint32_t, shifted) << 23;
  return __builtin_bit_cast(float, __builtin_bit_cast(std::uint32_t, p) + bits);
}

/// log(1 + e^u) = max(u, 0) + log(1 + e), e = e^-|u|, and log(1 + e) = 2 artanh(e / (2 + e)) as a series.
inline float softplus(float u) {
  const float e = exponential(u < 0 ? u : -u);
  const float y = e / (2.0F + e);
  const float y2 = y * y;
  float p = 2.0F / 15;
  p = multiply_add(p, y2, 2.0F / 13);
  p = multiply_add(p, y2, 2.0F / 11);
  p = multiply_add(p, y2, 2.0F / 9);
  p = multiply_add(p, y2, 2.0F / 7);
  p = multiply_add(p, y2, 2.0F / 5);
  p = multiply_add(p, y2, 2.0F / 3);
  p = multiply_add(p, y2, 2.0F);
  return multiply_add(p, y, u > 0 ? u : 0.0F);
}

inline float half_to_float(std::uint16_t half) {
#if defined(__F16C__)
  return _cvtsh_ss(half);
#else
  // Move exponent and mantissa into place and let one exact multiplication by 2^112 rebias the exponent: it
  // also turns subnormal halves into the right normal floats. Infinity and NaN need their exponent filled up.
  const std::uint32_t magnitude = static_cast<std::uint32_t>(half & 0x7fff) << 13;
  float value;
  std::memcpy(&value, &magnitude, sizeof value);
  value *= 0x1p112F;
  std::uint32_t bits;
  std::memcpy(&bits, &value, sizeof bits);
  if ((half & 0x7c00) == 0x7c00) bits |= 0x7f800000U;
  bits |= static_cast<std::uint32_t>(half & 0x8000) << 16;
  std::memcpy(&value, &bits, sizeof value);
  return value;
#endif
}

/// Rounded to the nearest; |value| must be below 2^15.
inline std::uint16_t float_to_half(float value) {
#if defined(__F16C__)
  return static_cast<std::uint16_t>(_cvtss_sh(value, _MM_FROUND_TO_NEAREST_INT));
#else
  std::uint32_t bits;
  std::memcpy(&bits, &value, sizeof bits);
  const std::uint32_t sign = bits >> 16 & 0x8000U;
  bits &= 0x7fffffffU;
  if (bits < 0x38800000U)  // below 2^-14: a multiple of 2^-24
    return static_cast<std::uint16_t>(sign |
                                      static_cast<std::uint32_t>((value < 0 ? -value : value) * 0x1p24F + 0.5F));
  bits += 0xfffU + (bits >> 13 & 1U);
  return static_cast<std::uint16_t>(sign | (bits - 0x38000000U) >> 13);
#endif
}

#if !defined(__AVX2__)
inline void store_half(std::uint16_t* p, const Lanes& a) {
  for (int i = 0; i < 16; ++i) p[i] = float_to_half(a.v[i / 4][i % 4]);
}
#endif

inline float to_float(float weight) { return weight; }
inline float to_float(std::uint16_t weight) { return half_to_float(weight); }

/// Sixteen stored weights.
inline Lanes load_weights(const float* p) { return load(p); }
inline Lanes load_weights(const std::uint16_t* p) {
#if defined(__F16C__)
  return load_half(p);
#else
  alignas(64) float w[16];
  for (int i = 0; i < 16; ++i) w[i] = half_to_float(p[i]);
  return load(w);
#endif
}

/// Writes base + i for every set bit i, rising, and returns the end; may write sixteen whatever the mask.
inline std::uint16_t* write_set_bits(std::uint32_t mask, std::uint32_t base, std::uint16_t* out) {
#if defined(__AVX512F__)
  const __m512i lanes = _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
  const __m512i set = _mm512_maskz_compress_epi32(static_cast<__mmask16>(mask), lanes);
  const __m512i labels = _mm512_add_epi32(set, _mm512_set1_epi32(static_cast<int>(base)));
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(out), _mm512_cvtepi32_epi16(labels));
  return out + __builtin_popcount(mask);
#else
  for (; mask != 0; mask &= mask - 1) *out++ = static_cast<std::uint16_t>(base + __builtin_ctz(mask));
  return out;
#endif
}

/// kRowMaskCycles: see Kernels; kSumsInRegisters: how many Lanes are summed side by side, beside two more.
/// Weights dealt out to the lanes whose bit is set, lowest first; 0 in the others. Reads sixteen whatever the
/// mask.
#if defined(__AVX512F__)
constexpr std::int64_t kRowMaskCycles = 4;
constexpr int kSumsInRegisters = 16;
template <typename Weight>
inline Lanes expand_weights(const Weight* p, std::uint32_t mask) {
  return {_mm512_maskz_expand_ps(static_cast<__mmask16>(mask), load_weights(p).v)};
}
#elif defined(__AVX2__)
/// For each byte of mask: the number of set bits below each bit, eight bytes packed into one word.
struct ExpandTable {
  std::uint64_t places[256];
  constexpr ExpandTable() : places() {
    for (int mask = 0; mask < 256; ++mask)
      for (int bit = 0, place = 0; bit < 8; ++bit)
        if (mask >> bit & 1) places[mask] |= static_cast<std::uint64_t>(place++) << 8 * bit;
  }
};
constexpr ExpandTable kExpand;
constexpr std::int64_t kRowMaskCycles = 7;
constexpr int kSumsInRegisters = 4;

inline __m256 load_eight(const float* p) { return _mm256_loadu_ps(p); }
inline __m256 load_eight(const std::uint16_t* p) {
  return _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)));
}
template <typename Weight>
inline __m256 expand_eight(const Weight* p, std::uint32_t mask) {
  const __m256i bits = _mm256_setr_epi32(1, 2, 4, 8, 16, 32, 64, 128);
  const __m256i present = _mm256_cmpeq_epi32(_mm256_and_si256(_mm256_set1_epi32(static_cast<int>(mask)), bits), bits);
  const __m256i places = _mm256_cvtepu8_epi32(_mm_cvtsi64_si128(static_cast<long long>(kExpand.places[mask])));
  return _mm256_and_ps(_mm256_permutevar8x32_ps(load_eight(p), places), _mm256_castsi256_ps(present));
}
template <typename Weight>
inline Lanes expand_weights(const Weight* p, std::uint32_t mask) {
  const std::uint32_t low = mask & 255;
  return {expand_eight(p, low), expand_eight(p + __builtin_popcount(low), mask >> 8)};
}
#else
constexpr std::int64_t kRowMaskCycles = 80;
constexpr int kSumsInRegisters = 2;
template <typename Weight>
inline Lanes expand_weights(const Weight* p, std::uint32_t mask) {
  alignas(64) float w[16] = {};
  for (; mask != 0; mask &= mask - 1) w[__builtin_ctz(mask)] = to_float(*p++);
  return load(w);
}
#endif

}  // namespace
}  // namespace umpteen::UMPTEEN_ISA
