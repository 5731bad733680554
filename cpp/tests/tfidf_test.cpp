#include "umpteen/tfidf.hpp"

#include <cmath>
#include <random>
#include <string>
#include <vector>

#include "check.hpp"

using namespace umpteen;

namespace {

/// Any bytes at all, with words among them: what no caller should pass, and what must do no harm.
std::vector<std::string> random_texts(std::size_t n) {
  std::mt19937 random(7);
  std::vector<std::string> texts(n);
  for (std::string& text : texts) {
    const std::size_t length = random() % 600;
    while (text.size() < length) {
      if (random() % 8 == 0) text += static_cast<char>(random() % 256);
      text += "w" + std::to_string(random() % 500) + (random() % 5 == 0 ? "é漢" : " ");
    }
  }
  return texts;
}

std::vector<TextView> view(const std::vector<std::string>& texts) {
  std::vector<TextView> views;
  for (const std::string& text : texts) views.push_back({text, true});
  return views;
}

const std::vector<std::uint32_t>& word_table() {
  static const std::vector<std::uint32_t> table(0x110000 / 32, 0xfffffffe);
  return table;
}

struct Fitted {
  TermCounter::Columns columns;
  WeightedRows rows;
};

Fitted fit(const std::vector<TextView>& texts, const TermRules& rules, int threads) {
  Control control;
  TermCounter counter(rules, true);
  const auto half = texts.begin() + static_cast<std::ptrdiff_t>(texts.size() / 2);
  counter.add({texts.begin(), half}, word_table().data(), threads, control);
  counter.add({half, texts.end()}, word_table().data(), threads, control);
  Fitted out;
  out.columns = counter.finish({2, 1e9, 3000}, threads, control);
  out.rows = counter.rows({true, nullptr, Weighting::Norm::l2}, threads, control);
  return out;
}

void counts_words() {
  const std::vector<std::string> texts{"The herring, the QUOTA", "a herring"};
  Control control;
  TermCounter counter({}, true);
  counter.add(view(texts), nullptr, 2, control);
  const TermCounter::Columns columns = counter.finish({1, 2, 0}, 2, control);
  const TermView terms = columns.terms.view();
  CHECK(terms.n_terms == 3 && terms.term(0) == "herring" && terms.term(1) == "quota" && terms.term(2) == "the");
  CHECK(columns.n_rows == std::vector<std::int64_t>({2, 1, 1}));
  const WeightedRows rows = counter.rows({false, nullptr, Weighting::Norm::none}, 2, control);
  CHECK(rows.indptr == std::vector<std::int64_t>({0, 3, 4}));
  CHECK(rows.indices == std::vector<std::int32_t>({0, 1, 2, 0}));
  CHECK(rows.values == std::vector<float>({1, 1, 2, 1}));
  const std::vector<std::string> others{"herring of mars"};
  const WeightedRows other = weigh_texts(view(others), nullptr, {}, terms, {}, 1, control);
  CHECK(other.n_terms[0] == 3 && other.n_unknown[0] == 2 && other.values == std::vector<float>{1});
}

void the_same_on_any_number_of_threads() {
  const std::vector<std::string> texts = random_texts(3000);
  TermRules rules;
  rules.max_n = 2;
  for (const std::int64_t n_hashed : {0, 1000}) {
    rules.n_hashed = n_hashed;
    const Fitted one = fit(view(texts), rules, 1);
    for (const int threads : {2, 5}) {
      const Fitted many = fit(view(texts), rules, threads);
      CHECK(many.columns.terms.bytes_ == one.columns.terms.bytes_);
      CHECK(many.columns.n_rows == one.columns.n_rows);
      CHECK(many.rows.indices == one.rows.indices && many.rows.values == one.rows.values);
      Control control;
      const WeightedRows again = weigh_texts(view(texts), word_table().data(), rules, many.columns.terms.view(),
                                             {true, nullptr}, threads, control);
      CHECK(again.indptr == one.rows.indptr && again.indices == one.rows.indices && again.values == one.rows.values);
    }
  }
}

void given_words_may_be_anything() {
  TermRules rules;
  rules.words_given = true;
  rules.max_n = 2;
  using namespace std::string_literals;
  const std::vector<std::string> texts{"a b\0\0c\0"s, "no end"s, "\0"s, ""s};
  Control control;
  TermCounter counter(rules, false);
  counter.add(view(texts), nullptr, 2, control);
  const TermCounter::Columns columns = counter.finish({1, 4, 0}, 1, control);
  std::vector<std::string> terms;
  for (std::int64_t i = 0; i < columns.terms.size(); ++i) terms.emplace_back(columns.terms.view().term(i));
  CHECK(terms == std::vector<std::string>({"", " c", "a b", "a b ", "c", "no end"}));
}

void hostile_slots_are_harmless() {
  const std::vector<std::string> texts = random_texts(200);
  const Fitted fitted = fit(view(texts), {}, 1);
  TermView terms = fitted.columns.terms.view();
  std::mt19937 random(3);
  for (int round = 0; round < 20; ++round) {
    std::vector<TermSlot> slots(fitted.columns.terms.slots_);
    for (TermSlot& slot : slots)
      if (random() % 4 != 0)
        slot = {random() % 2 == 0 ? slot.hash : static_cast<std::uint32_t>(random()),
                static_cast<std::uint32_t>(random())};
    terms.slots = slots.data();
    Control control;
    const WeightedRows rows = weigh_texts(view(texts), word_table().data(), {}, terms, {}, 2, control);
    for (const std::int32_t column : rows.indices) CHECK(column >= 0 && column < terms.n_terms);
  }
}

void cancels() {
  const std::vector<std::string> texts = random_texts(500);
  CancelToken token;
  token.cancel();
  Control control(&token);
  TermCounter counter({}, true);
  CHECK_THROWS(counter.add(view(texts), word_table().data(), 2, control), Cancelled);
}

void text_beyond_ascii_needs_the_table() {
  const std::vector<std::string> texts{"na\xc3\xafve"};
  Control control;
  TermCounter counter({}, true);
  CHECK_THROWS(counter.add(view(texts), nullptr, 2, control), std::invalid_argument);
}

}  // namespace

int main() {
  counts_words();
  the_same_on_any_number_of_threads();
  given_words_may_be_anything();
  hostile_slots_are_harmless();
  cancels();
  text_beyond_ascii_needs_the_table();
  return report();
}
