// Who brings a block what it works on and takes what it makes, where ranks share weights and gradients: told of every
// block as it works.
#pragma once

#include <fathom/core/bytes.hpp>

namespace fathom::nn {

/// Told of blocks of the main model by their number.
class block_watch {
  public:
    /// Before a block runs forward, or back to the gradient of its input: its weights must be there.
    virtual void needs_weights(integer block, bool backward) = 0;
    /// Before the gradients of its weights are added to: what they are added to must be there. Early: only those of
    /// its experts may be, in the part of backward that leaves the weights' to later.
    virtual void begins_gradients(integer block, bool early) = 0;
    /// The gradients of its weights of one micro-batch are there.
    virtual void has_gradients(integer block) = 0;

  protected:
    ~block_watch() = default;
};

}  // namespace fathom::nn
