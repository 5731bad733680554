#pragma once

namespace umpteen {

/// What of the value lies beyond [-limit, limit]: the soft threshold.
inline float soften(float value, float limit) {
  return value > limit ? value - limit : value < -limit ? value + limit : 0.0F;
}

}  // namespace umpteen
