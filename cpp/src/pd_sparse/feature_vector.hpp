#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "../as_size.hpp"
#include "../soften.hpp"
#include "umpteen/aligned.hpp"
#include "umpteen/simd.hpp"

namespace umpteen::pd {

/// One v_k: a hash table from features to values, or, where that would take no less room, an array over all features.
/// The hash of feature f is hash[f], a permutation shared by all tables, cut to the table's size.
class FeatureVector {
 public:
  std::int64_t bytes() const {
    return static_cast<std::int64_t>(values_.capacity() * sizeof(float) + keys_.capacity() * sizeof(std::int32_t));
  }
  void clear() { *this = FeatureVector(); }

  float dot_soft(const std::uint32_t* hash, const std::int32_t* indices, const float* data, std::int64_t n,
                 float limit) const {
    if (values_.empty()) return 0;
    if (dense_) return dual_kernels().dot_soft(indices, data, n, values_.data(), limit);
    double total = 0;
    for (std::int64_t i = 0; i < n; ++i) {
      const std::size_t slot = find(hash, indices[i]);
      if (keys_[slot] >= 0) total += data[i] * soften(values_[slot], limit);
    }
    return static_cast<float>(total);
  }

  void add(const std::uint32_t* hash, std::int64_t n_features, const std::int32_t* indices, const float* data,
           std::int64_t n, float factor) {
    if (dense_) return add_dense(indices, data, n, factor);
    for (std::int64_t i = 0; i < n; ++i) {
      if (is_full()) {
        grow(hash, n_features);
        if (dense_) return add_dense(indices + i, data + i, n - i, factor);
      }
      const std::size_t slot = find(hash, indices[i]);
      if (keys_[slot] < 0) {
        keys_[slot] = indices[i];
        ++count_;
      }
      values_[slot] += factor * data[i];
    }
  }

  /// The same, but features with a value of 0 keep it.
  void add_to_support(const std::uint32_t* hash, const std::int32_t* indices, const float* data, std::int64_t n,
                      float factor) {
    if (values_.empty()) return;
    for (std::int64_t i = 0; i < n; ++i) {
      float& value = values_[dense_ ? as_size(indices[i]) : find(hash, indices[i])];
      value = value != 0 ? value + factor * data[i] : 0.0F;
    }
  }

  /// Calls visit(feature, w) for every w = soft(v, limit) other than 0, in no particular order.
  template <typename Visit>
  void each(float limit, Visit visit) const {
    for (std::size_t i = 0; i < values_.size(); ++i)
      if (values_[i] > limit || values_[i] < -limit)
        visit(dense_ ? static_cast<std::int32_t>(i) : keys_[i], soften(values_[i], limit));
  }

  /// Sets values with |v| <= limit to 0.
  void keep_above(float limit) {
    for (float& value : values_)
      if (value <= limit && value >= -limit) value = 0;
  }

 private:
  static constexpr std::size_t kSmallestTable = 8;

  void add_dense(const std::int32_t* indices, const float* data, std::int64_t n, float factor) {
    newton_kernels().add_sparse(indices, data, n, factor, values_.data());
  }

  /// Three quarters of the slots may be taken.
  bool is_full() const { return 4 * (count_ + 1) > 3 * keys_.size(); }

  /// The slot of a feature, or the empty one where it would go.
  std::size_t find(const std::uint32_t* hash, std::int32_t feature) const {
    const std::size_t mask = keys_.size() - 1;
    std::size_t slot = hash[feature] & mask;
    while (keys_[slot] != feature && keys_[slot] >= 0) slot = (slot + 1) & mask;
    return slot;
  }

  void grow(const std::uint32_t* hash, std::int64_t n_features) {
    const std::vector<std::int32_t> keys = std::move(keys_);
    const Floats values = std::move(values_);
    const std::size_t room = keys.empty() ? kSmallestTable : 2 * keys.size();
    dense_ = 2 * room >= as_size(n_features);  // a slot takes twice the bytes of an array's element
    if (dense_) {
      keys_ = {};
      values_.assign(as_size(n_features), 0.0F);
    } else {
      keys_.assign(room, -1);
      values_.assign(room, 0.0F);
    }
    for (std::size_t i = 0; i < keys.size(); ++i) {
      if (keys[i] < 0) continue;
      const std::size_t slot = dense_ ? as_size(keys[i]) : find(hash, keys[i]);
      if (!dense_) keys_[slot] = keys[i];
      values_[slot] = values[i];
    }
  }

  bool dense_ = false;
  std::size_t count_ = 0;           // features in the table
  std::vector<std::int32_t> keys_;  // -1 where a slot is empty; a power of two of them
  Floats values_;
};

}  // namespace umpteen::pd
