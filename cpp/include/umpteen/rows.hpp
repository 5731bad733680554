#pragma once

#include "umpteen/csr.hpp"
#include "umpteen/parallel.hpp"

namespace umpteen {

/// out = X's values with every row scaled to length 1; a row of zeros stays as it is. Each row is summed on
/// its own, in order and in double, so its values do not depend on the rows around it.
void normalize_rows(const CsrView& X, float* out, int threads, Control& control);

}  // namespace umpteen
