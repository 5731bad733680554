// Which bytes and characters words are made of.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <utility>

namespace umpteen {

/// For each byte what it becomes in a word: 0 for ASCII that is not of words, 0xff for bytes beyond ASCII.
inline std::array<unsigned char, 256> make_word_bytes(bool lowercase) {
  std::array<unsigned char, 256> out{};
  for (int c = 0; c < 128; ++c) {
    const bool upper = c >= 'A' && c <= 'Z';
    if (upper || (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '_')
      out[static_cast<std::size_t>(c)] = static_cast<unsigned char>(upper && lowercase ? c + 32 : c);
  }
  std::fill(out.begin() + 128, out.end(), static_cast<unsigned char>(0xff));
  return out;
}

/// The character at p, beyond ASCII, and how many bytes it has; bytes that are not UTF-8 count as one that is in no
/// word.
inline std::pair<std::uint32_t, int> decode(const unsigned char* p, const unsigned char* end) {
  const int n = *p >= 0xf0 ? 4 : *p >= 0xe0 ? 3 : *p >= 0xc0 ? 2 : 1;
  if (n == 1 || end - p < n) return {0, 1};
  std::uint32_t c = *p & (0x7fU >> n);
  for (int i = 1; i < n; ++i) {
    if ((p[i] & 0xc0) != 0x80) return {0, 1};
    c = (c << 6) | (p[i] & 0x3fU);
  }
  return c < 0x110000 ? std::pair{c, n} : std::pair{0U, 1};
}

}  // namespace umpteen
