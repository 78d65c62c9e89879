// A bare format says nothing of what is kept in it.
#include <fathom/recipe/precision.hpp>

using namespace fathom;

#ifdef REFUSED
// refused: fathom: precision<> got a word that it does not know. fix: weights<...>, master<...>, gradients<...>
//     and moments<...> say what each is kept in.
constexpr precision<bf16> numbers;
#else
constexpr precision<weights<bf16>> numbers;
#endif
