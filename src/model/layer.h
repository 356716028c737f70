// One layer of a decoder, and the rows that pass through all of them. What differs between
// architectures beyond their blocks (which norm comes where, what is added to what) is a Layer.
//
// Thread rule: immutable after construction; Mix and Feed as Step.
#ifndef BATON_MODEL_LAYER_H_
#define BATON_MODEL_LAYER_H_

#include <cstdint>
#include <memory>
#include <vector>

#include "model/step.h"

namespace baton::model {

// Hidden states of a step, each [rows][hidden_size].
struct Hidden {
  Rows h;         // residual stream, without what is pending
  Rows x;         // normed input of a block
  Rows y;         // output of a block
  Rows embedded;  // the embeddings as they came; null unless the model keeps them
  int64_t rows = 0;
  int64_t width = 0;
  // y, times `pending_scale`, is still to be added to h: the next norm reads both anyway.
  bool pending = false;
  float pending_scale = 1;

  void Leave(float scale) {
    pending = true;
    pending_scale = scale;
  }
};

// Weights [hidden_size] of an RMS norm.
struct NormRef {
  const std::vector<float>* weight = nullptr;
  float eps = 0;
};

// h += what is pending; x = norm(h).
void AddAndNorm(const Step& step, NormRef norm, Hidden* hidden);
// h += what is pending.
void AddPending(const Step& step, Hidden* hidden);

class Layer {
 public:
  virtual ~Layer() = default;
  // Floats Mix or Feed take from the arena for `rows` rows.
  virtual int64_t Scratch(int64_t rows) const = 0;
  // The part that reads and writes the sequences' memory: needs every row of the step.
  virtual void Mix(const Step& step, Hidden* hidden) const = 0;
  // The rest, row by row: `hidden` may hold any subset of the step's rows.
  virtual void Feed(const Step& step, Hidden* hidden) const = 0;
};

}  // namespace baton::model

#endif  // BATON_MODEL_LAYER_H_
