#pragma once

#include <algorithm>
#include <cstdint>
#include <numeric>
#include <vector>

#include "umpteen/csr.hpp"
#include "umpteen/l1_newton.hpp"

namespace umpteen {

/// The columns of X over the rows of each node that waits to be split: one node above the other, the next one on top.
///
/// A node's columns are its parent's, dealt out to its two children: the first child's fall into the place of the
/// parent's, the second child's go on top. So nothing is counted or sorted again, everything is read and written in
/// order, and all nodes together never need more room than X does.
template <typename Row>
class ColumnStack {
 public:
  /// Puts these rows of X at the bottom, with the constant as the last column.
  void start(const CsrView& X, const std::vector<std::int32_t>& rows, double constant) {
    std::vector<std::int64_t> next(static_cast<std::size_t>(X.n_cols) + 2, 0);
    for (const std::int32_t row : rows)
      for (std::int64_t i = X.indptr[row]; i < X.indptr[row + 1]; ++i)
        ++next[static_cast<std::size_t>(X.indices[i]) + 1];
    next.back() = static_cast<std::int64_t>(rows.size());
    columns_.clear();
    for (std::int64_t f = 0; f <= X.n_cols; ++f) {
      const std::int64_t size = next[static_cast<std::size_t>(f) + 1];
      if (size > 0) columns_.push_back({static_cast<std::int32_t>(f), static_cast<std::int32_t>(size)});
    }
    std::partial_sum(next.begin(), next.end(), next.begin());
    rows_.resize(static_cast<std::size_t>(next.back()) + 1);  // dealing out may write one too many
    values_.resize(rows_.size());
    Row local = 0;
    for (const std::int32_t row : rows) {
      for (std::int64_t i = X.indptr[row]; i < X.indptr[row + 1]; ++i)
        put(next[static_cast<std::size_t>(X.indices[i])]++, local, X.data[i]);
      put(next[static_cast<std::size_t>(X.n_cols)]++, local, static_cast<float>(constant));
      ++local;
    }
    nodes_.assign(1, {0, 0});
    n_entries_ = rows_.size() - 1;
    list_top();
  }

  /// The node on top; valid until the stack changes.
  ColumnsView<Row> top(std::int64_t n_rows) const {
    const std::size_t begin = nodes_.back().entry;
    return {n_rows, n_columns(), start_.data(), rows_.data() + begin, values_.data() + begin};
  }
  std::int64_t n_columns() const { return static_cast<std::int64_t>(features_.size()); }
  const std::int32_t* features() const { return features_.data(); }

  void pop() {
    n_entries_ = nodes_.back().entry;
    columns_.resize(nodes_.back().column);
    nodes_.pop_back();
    if (!nodes_.empty()) list_top();
  }

  /// Replaces the top by its two children, the second above the first. By row of the top: twice the row's number in
  /// its child, and 1 more for the second child. A child that is not wanted gets no columns.
  void deal(const std::vector<std::uint32_t>& places, bool first, bool second) {
    if (first && second)
      deal_out<true, true>(places);
    else if (first)
      deal_out<true, false>(places);
    else if (second)
      deal_out<false, true>(places);
    else
      deal_out<false, false>(places);
  }

 private:
  struct Column {
    std::int32_t feature;
    std::int32_t size;
  };
  struct Node {
    std::size_t column;  // where its columns and entries begin
    std::size_t entry;
  };

  void put(std::int64_t at, Row row, float value) {
    rows_[static_cast<std::size_t>(at)] = row;
    values_[static_cast<std::size_t>(at)] = value;
  }

  template <bool First, bool Second>
  void deal_out(const std::vector<std::uint32_t>& places) {
    const Node node = nodes_.back();
    const std::size_t n_columns = columns_.size() - node.column;
    if constexpr (Second) {
      other_rows_.resize(std::max(other_rows_.size(), n_entries_ - node.entry + 1));
      other_values_.resize(other_rows_.size());
    }
    other_columns_.clear();
    std::size_t first = node.entry;
    std::size_t first_column = node.column;
    std::size_t second = 0;
    if constexpr (First || Second) {
      std::size_t i = node.entry;
      for (std::size_t c = 0; c < n_columns; ++c) {
        const Column column = columns_[node.column + c];
        const std::size_t end = i + static_cast<std::size_t>(column.size);
        const std::size_t first_begin = first;
        const std::size_t second_begin = second;
        for (; i < end; ++i) {
          // Written to both, counted in one: a branch would be unpredictable.
          const std::uint32_t place = places[rows_[i]];
          const float value = values_[i];
          if constexpr (Second) {
            other_rows_[second] = static_cast<Row>(place >> 1);
            other_values_[second] = value;
            second += place & 1;
          }
          if constexpr (First) {
            rows_[first] = static_cast<Row>(place >> 1);
            values_[first] = value;
            first += ~place & 1;
          }
        }
        if (First && first > first_begin)
          columns_[first_column++] = {column.feature, static_cast<std::int32_t>(first - first_begin)};
        if (Second && second > second_begin)
          other_columns_.push_back({column.feature, static_cast<std::int32_t>(second - second_begin)});
      }
    }
    columns_.resize(first_column);
    nodes_.push_back({first_column, first});
    columns_.insert(columns_.end(), other_columns_.begin(), other_columns_.end());
    std::copy_n(other_rows_.begin(), second, rows_.begin() + static_cast<std::ptrdiff_t>(first));
    std::copy_n(other_values_.begin(), second, values_.begin() + static_cast<std::ptrdiff_t>(first));
    n_entries_ = first + second;
    list_top();
  }

  void list_top() {
    features_.clear();
    start_.assign(1, 0);
    for (std::size_t c = nodes_.back().column; c < columns_.size(); ++c) {
      features_.push_back(columns_[c].feature);
      start_.push_back(start_.back() + columns_[c].size);
    }
  }

  std::vector<Node> nodes_;
  std::vector<Column> columns_, other_columns_;
  std::vector<Row> rows_, other_rows_;
  std::vector<float> values_, other_values_;
  std::size_t n_entries_ = 0;
  std::vector<std::int32_t> features_;  // of the top
  std::vector<std::int64_t> start_;
};

}  // namespace umpteen
