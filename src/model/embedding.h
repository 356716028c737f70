// Rows of the embedding matrix, read from its packed form, so that tied embeddings exist once.
// Thread rule: free functions.
#ifndef BATON_MODEL_EMBEDDING_H_
#define BATON_MODEL_EMBEDDING_H_

#include <cstdint>

#include "kernel/packed_matrix.h"

namespace baton::model {

// to[k] = multiplier * W[row][k].
void LoadRow(const kernel::PackedMatrix& w, int64_t row, float multiplier, float* to);

}  // namespace baton::model

#endif  // BATON_MODEL_EMBEDDING_H_
