#include <memory>
#include <string>

#include "characters.hpp"
#include "umpteen/term_matcher.hpp"

namespace umpteen {

namespace {

constexpr std::int64_t kBlockBytes = 1 << 17;
constexpr std::int64_t kLongestSentence = 256;
constexpr int kShortWord = 4;  // a full stop after fewer characters may be that of an abbreviation

struct Block {
  int worker = 0;
  std::vector<std::int32_t> tokens;         // numbers of the worker's words
  std::vector<std::int64_t> sentence_ends;  // in this block's tokens
  std::vector<std::int64_t> text_ends;      // in this block's sentences
};

bool is_blank(unsigned char c) { return c == ' ' || c == '\t' || c == '\r' || c == '\n'; }

/// Reads one text into a block.
class Reader {
 public:
  Reader(TermList& words, Block& block, WordTable table) : words_(words), block_(block), table_(table) {}

  void read(const TextView& text) {
    static const auto raw_bytes = make_word_bytes(true);
    static const auto ready_bytes = make_word_bytes(false);
    const auto& word_bytes = text.raw ? raw_bytes : ready_bytes;
    const auto* p = reinterpret_cast<const unsigned char*>(text.bytes.data());
    const auto* const end = p + text.bytes.size();
    int length = 0;  // of the last word, in characters
    while (p < end) {
      word_.clear();
      int n = 0;
      while (p < end && take(p, end, word_bytes[*p])) ++n;
      if (n > 0) {
        length = n;
        add_word();
      }
      if (p == end) break;
      if (ends_sentence(p, end, length)) end_sentence();
      p += *p < 0x80 ? 1 : decode(p, end).second;
    }
    end_sentence();
    block_.text_ends.push_back(static_cast<std::int64_t>(block_.sentence_ends.size()));
  }

 private:
  /// Adds a character to the word and goes on, if it may stand in one.
  bool take(const unsigned char*& p, const unsigned char* end, unsigned char byte) {
    if (byte == 0) return false;
    if (byte != 0xff) {
      word_.push_back(static_cast<char>(byte));
      ++p;
      return true;
    }
    if (table_ == nullptr) throw std::invalid_argument("text beyond ASCII needs the table of word characters");
    const auto [c, n] = decode(p, end);
    if ((table_[c >> 5] >> (c & 31) & 1) == 0) return false;
    word_.append(reinterpret_cast<const char*>(p), static_cast<std::size_t>(n));
    p += n;
    return true;
  }

  static bool ends_sentence(const unsigned char* p, const unsigned char* end, int length) {
    const auto next = [&](int i) { return end - p > i ? p[i] : static_cast<unsigned char>('\n'); };
    if (*p == '.') return length >= kShortWord && is_blank(next(1));
    if (*p == '!' || *p == '?') return is_blank(next(1));
    return *p == '\n' && (next(1) == '\n' || (next(1) == '\r' && next(2) == '\n'));
  }

  void add_word() {
    block_.tokens.push_back(words_.find_or_add(word_, hash_term(word_)));
    if (size() - sentence_begin() >= kLongestSentence) end_sentence();
  }

  void end_sentence() {
    if (size() > sentence_begin()) block_.sentence_ends.push_back(size());
  }

  std::int64_t size() const { return static_cast<std::int64_t>(block_.tokens.size()); }
  std::int64_t sentence_begin() const { return block_.sentence_ends.empty() ? 0 : block_.sentence_ends.back(); }

  TermList& words_;
  Block& block_;
  WordTable table_;
  std::string word_;
};

/// Where each block of texts begins, and the end of the last.
std::vector<std::size_t> divide(const std::vector<TextView>& texts) {
  std::vector<std::size_t> begins{0};
  std::int64_t n_bytes = 0;
  for (std::size_t i = 0; i < texts.size(); ++i) {
    n_bytes += static_cast<std::int64_t>(texts[i].bytes.size());
    if (n_bytes < kBlockBytes && i + 1 < texts.size()) continue;
    begins.push_back(i + 1);
    n_bytes = 0;
  }
  return begins;
}

}  // namespace

WordStream read_words(const std::vector<TextView>& texts, WordTable word_table, int threads, Control& control) {
  const std::vector<std::size_t> begins = divide(texts);
  const auto n_blocks = static_cast<std::int64_t>(begins.size()) - 1;
  std::vector<TermList> words(static_cast<std::size_t>(clamp_threads(n_blocks, threads)));
  std::vector<Block> blocks(static_cast<std::size_t>(n_blocks));
  parallel_for(n_blocks, threads, control, [&](std::int64_t i, int worker) {
    Block& block = blocks[static_cast<std::size_t>(i)];
    block.worker = worker;
    Reader reader(words[static_cast<std::size_t>(worker)], block, word_table);
    for (std::size_t t = begins[i]; t < begins[i + 1]; ++t) {
      control.check_in(worker);
      reader.read(texts[t]);
    }
  });
  WordStream out;
  std::vector<std::vector<std::int32_t>> number_of(words.size());  // of each worker's words
  for (std::size_t worker = 0; worker < words.size(); ++worker) {
    const TermView view = words[worker].view();
    number_of[worker].reserve(static_cast<std::size_t>(view.n_terms));
    for (std::int64_t id = 0; id < view.n_terms; ++id)
      number_of[worker].push_back(out.words.find_or_add(view.term(id), hash_term(view.term(id))));
  }
  for (const Block& block : blocks) {
    const auto n_tokens = static_cast<std::int64_t>(out.tokens.size());
    const auto n_sentences = static_cast<std::int64_t>(out.sentence_ends.size());
    const auto& numbers = number_of[static_cast<std::size_t>(block.worker)];
    for (const std::int32_t token : block.tokens) out.tokens.push_back(numbers[static_cast<std::size_t>(token)]);
    for (const std::int64_t end : block.sentence_ends) out.sentence_ends.push_back(n_tokens + end);
    for (const std::int64_t end : block.text_ends) out.text_ends.push_back(n_sentences + end);
  }
  return out;
}

}  // namespace umpteen
