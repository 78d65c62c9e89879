// Which parameters weight decay shrinks: papers differ, so the choice has a name.
#pragma once

namespace fathom::optim {

/// `matrices`: parameters of two axes or more, not gains and biases (as DeepSeek and most others train); `all`: every
/// parameter.
enum class decay : unsigned char { matrices, all };

/// Whether a parameter of that many axes decays.
constexpr bool decays(decay group, int axes) { return group == decay::all || axes >= 2; }

}  // namespace fathom::optim
