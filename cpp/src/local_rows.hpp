// Some rows of a matrix as a small matrix of their own, over the features they have.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "umpteen/csr.hpp"

namespace umpteen {

class LocalRows {
 public:
  explicit LocalRows(const CsrView& X) : X_(X), number_(static_cast<std::size_t>(X.n_cols), -1) {}

  /// Copies these rows and renumbers their features in the same order.
  void gather(const std::int32_t* rows, std::int64_t n_rows) {
    for (const std::int32_t f : features_) number_[static_cast<std::size_t>(f)] = -1;
    features_.clear();
    indptr_.assign(1, 0);
    for (std::int64_t r = 0; r < n_rows; ++r) {
      const std::int64_t begin = X_.indptr[rows[r]];
      const std::int64_t end = X_.indptr[rows[r] + 1];
      for (std::int64_t i = begin; i < end; ++i) {
        std::int32_t& number = number_[static_cast<std::size_t>(X_.indices[i])];
        if (number < 0) features_.push_back(X_.indices[i]);
        number = 0;
      }
      indptr_.push_back(indptr_.back() + end - begin);
    }
    std::sort(features_.begin(), features_.end());
    for (std::size_t f = 0; f < features_.size(); ++f)
      number_[static_cast<std::size_t>(features_[f])] = static_cast<std::int32_t>(f);
    indices_.resize(static_cast<std::size_t>(indptr_.back()));
    data_.resize(indices_.size());
    std::size_t at = 0;
    for (std::int64_t r = 0; r < n_rows; ++r)
      for (std::int64_t i = X_.indptr[rows[r]]; i < X_.indptr[rows[r] + 1]; ++i, ++at) {
        indices_[at] = number_[static_cast<std::size_t>(X_.indices[i])];
        data_[at] = X_.data[i];
      }
  }

  CsrView view() const {
    return {static_cast<std::int64_t>(indptr_.size()) - 1, static_cast<std::int64_t>(features_.size()),
            indptr_.data(), indices_.data(), data_.data()};
  }
  /// What the matrix calls the features.
  const std::vector<std::int32_t>& features() const { return features_; }

 private:
  const CsrView& X_;
  std::vector<std::int32_t> number_;  // by feature: its number here, or -1
  std::vector<std::int32_t> features_, indices_;
  std::vector<std::int64_t> indptr_;
  std::vector<float> data_;
};

}  // namespace umpteen
