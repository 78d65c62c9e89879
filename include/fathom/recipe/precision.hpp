// The number formats of a training step, each said once.
#pragma once

#include <fathom/core/number.hpp>
#include <type_traits>

namespace fathom {

using fp32 = float;
using fp64 = double;

/// Weights and activations, as products read them.
template <class T> struct weights { using type = T; };
/// The weights that the optimizer moves; the same storage as `weights` when the format is the same.
template <class T> struct master { using type = T; };
template <class T> struct gradients { using type = T; };
/// Both moments of the optimizer.
template <class T> struct moments { using type = T; };

namespace detail {

template <template <class> class Word, class Default, class... Words> struct format_of { using type = Default; };
template <template <class> class Word, class Default, class T, class... Words>
struct format_of<Word, Default, Word<T>, Words...> {
    using type = T;
};
template <template <class> class Word, class Default, class First, class... Words>
struct format_of<Word, Default, First, Words...> : format_of<Word, Default, Words...> {};

template <class T>
inline constexpr bool is_number = std::is_same_v<T, bf16> || std::is_same_v<T, float> || std::is_same_v<T, double>;

/// Which word of precision<> a type is, to tell foreign words and two uses of one.
template <class T> struct precision_word { static constexpr int kind = 0; };
template <class T> struct precision_word<fathom::weights<T>> { static constexpr int kind = 1; };
template <class T> struct precision_word<fathom::master<T>> { static constexpr int kind = 2; };
template <class T> struct precision_word<fathom::gradients<T>> { static constexpr int kind = 4; };
template <class T> struct precision_word<fathom::moments<T>> { static constexpr int kind = 8; };

template <class T, bool = is_number<T>> struct sum_format { using type = float; };
template <class T> struct sum_format<T, true> { using type = accumulator_t<T>; };

}  // namespace detail

namespace rule {

template <class... Words> struct only_precision_words {
    static_assert(((detail::precision_word<Words>::kind != 0) && ...),
                  "fathom: precision<> got a word that it does not know. fix: weights<...>, master<...>, "
                  "gradients<...> and moments<...> say what each is kept in.");
    static_assert((detail::precision_word<Words>::kind + ... + 0) == (detail::precision_word<Words>::kind | ... | 0),
                  "fathom: a word of precision<> is given twice. fix: keep one of the two.");
};

template <class Weights> struct weights_are_numbers {
    static_assert(detail::is_number<Weights>,
                  "fathom: weights have a number format. fix: weights<bf16>, weights<fp32> or weights<fp64>.");
};

template <class Weights, class Master, class Gradients, class Moments> struct sums_are_kept_in_one_format {
    static_assert(!detail::is_number<Weights> || (std::is_same_v<Master, typename detail::sum_format<Weights>::type> &&
                                                  std::is_same_v<Gradients, Master> && std::is_same_v<Moments, Master>),
                  "fathom: master weights, gradients and moments mix number formats. fix: keep all three in fp32 "
                  "beside weights<bf16> or "
                  "weights<fp32>, and in fp64 beside weights<fp64>.");
};

}  // namespace rule

/// precision<weights<bf16>, master<fp32>, gradients<fp32>, moments<fp32>>; what is left out is the format of sums over
/// the weights'.
template <class... Words>
struct precision
    : rule::only_precision_words<Words...>,
      rule::weights_are_numbers<typename detail::format_of<fathom::weights, float, Words...>::type>,
      rule::sums_are_kept_in_one_format<
          typename detail::format_of<fathom::weights, float, Words...>::type,
          typename detail::format_of<
              fathom::master,
              typename detail::sum_format<typename detail::format_of<fathom::weights, float, Words...>::type>::type,
              Words...>::type,
          typename detail::format_of<
              fathom::gradients,
              typename detail::sum_format<typename detail::format_of<fathom::weights, float, Words...>::type>::type,
              Words...>::type,
          typename detail::format_of<
              fathom::moments,
              typename detail::sum_format<typename detail::format_of<fathom::weights, float, Words...>::type>::type,
              Words...>::type> {
    using weights = typename detail::format_of<fathom::weights, float, Words...>::type;
    using sums = typename detail::sum_format<weights>::type;
};

}  // namespace fathom
