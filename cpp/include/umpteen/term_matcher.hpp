#pragma once

#include <cstdint>
#include <vector>

#include "umpteen/parallel.hpp"
#include "umpteen/tfidf.hpp"

namespace umpteen {

/// Texts as numbers of words, sentence by sentence. Words are the longest runs of word characters, in lower case.
///
/// A sentence ends at a full stop after a word of four characters or more, so that "St. Petersburg" stays whole, or
/// at a question or exclamation mark, if white space follows; at a blank line; and after 256 words, so that no text
/// is expensive.
struct WordStream {
  TermList words;                           ///< in an order that depends on threads; nothing else does
  std::vector<std::int32_t> tokens;         ///< numbers of words
  std::vector<std::int64_t> sentence_ends;  ///< in tokens; no sentence is empty
  std::vector<std::int64_t> text_ends;      ///< in sentences
};

WordStream read_words(const std::vector<TextView>& texts, WordTable word_table, int threads, Control& control);

/// What `match_terms` reads. `stem_of` has a row for each word and a column for each language: the number of the
/// word's stem there, or -1 if no term has it.
struct StemmedTexts {
  const std::int32_t* tokens;
  const std::int64_t* sentence_ends;
  const std::int64_t* text_ends;
  std::int64_t n_texts;
  const std::int32_t* stem_of;
  std::int64_t n_languages;
};

/// Terms as runs of stems, and by the stem that finds them: the one that fewest terms have.
struct TermIndex {
  const std::int64_t* ends;  ///< of each term, in stems
  const std::int32_t* stems;
  std::int64_t n_terms;
  const std::int64_t* key_ends;  ///< of each stem, in key_terms
  const std::int32_t* key_terms;
  std::int64_t n_stems;
};

/// A term in a text: it is in a sentence that has all its stems, in any order. Places count the text's words.
struct TermMatch {
  std::int32_t term;
  std::int32_t count;   ///< sentences that have it
  std::int32_t inside;  ///< of these, sentences that also have a longer term with all its stems
  std::int32_t exact;   ///< sentences where its stems stand side by side in its order
  std::int32_t first;   ///< where it begins in the first of these sentences
  std::int32_t last;    ///< in the last
  std::int32_t gap;     ///< fewest words between its own
};

struct TermMatches {
  std::vector<std::int64_t> text_ends;
  std::vector<TermMatch> matches;  ///< of a text by term
};

TermMatches match_terms(const StemmedTexts& texts, const TermIndex& index, int threads, Control& control);

}  // namespace umpteen
