// The words in which a kernel names its arguments, whatever block it runs on: raw pointers on a GPU, watched views in
// simulation.
#pragma once

namespace fathom::device {

/// A place in global memory: p[i], p + i. Numbers are read with static_cast and written by assignment.
template <class Block, class T> using global = typename Block::template global<T>;

/// A place in the block's shared memory, which `block.shared` gives.
template <class Block, class T> using shared = typename Block::template shared_view<T>;

/// Rows of numbers in global memory: rows, width, row(r), (r, c), empty(). A launch makes it of a `matrix<T>`.
template <class Block, class T> using rows = typename Block::template rows<T>;

}  // namespace fathom::device
