// The numbers of a model beside those of its blocks.
#pragma once

#include <fathom/core/bytes.hpp>
#include <fathom/nn/parameter.hpp>
#include <fathom/ops/rotary.hpp>

namespace fathom::models {

/// Sizes of a model outside its blocks, named as in a Hugging Face config.
struct transformer_facts {
    integer vocab_size = 0;
    integer hidden_size = 0;
    integer max_position_embeddings = 0;
    integer num_nextn_predict_layers = 0;
    double rms_norm_eps = 1e-6;
    double initializer_range = 0.006;
    bool tie_word_embeddings = false;
    ops::rope_facts rope{};
    nn::split_over tensor{};   // the ranks that split the vocabulary and the tokens of the residual stream
    nn::split_over context{};  // the ranks that split sequences
};

/// `count` equal blocks one after another. Layers are numbered from `first`.
template <class Block> struct segment {
    Block layer;
    integer first = 0;
    integer count = 0;
};

}  // namespace fathom::models
