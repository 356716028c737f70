// Says which tensors a model consists of and where each goes. An architecture describes its
// tensors once, and three users read the description: the loader (fills the weights), `check`
// (compares it with a checkpoint without reading weights) and the generator (writes such a
// checkpoint). Two destinations may share one tensor (gate|up in one matrix).
//
// Published checkpoints of one model type differ in names and baggage: AlsoNamed gives a part of
// the names a second spelling, Ignore and IgnorePrefix name what is left unread. Tensors in FP8
// with block scales are read as BF16 (quantisation.h) if the config says so.
//
// Thread rule: binding on one thread; Consume of different tensors may run in parallel.
#ifndef BATON_MODEL_WEIGHT_BINDER_H_
#define BATON_MODEL_WEIGHT_BINDER_H_

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/status.h"
#include "model/checkpoint.h"
#include "model/quantisation.h"
#include "model/weights.h"

namespace baton::model {

// What a tensor is, for the generator: decides the distribution of random values.
enum class TensorRole : uint8_t {
  kLinear,     // [out, in] or [E, out, in]
  kEmbedding,  // [V, h]
  kNorm,       // around 1
  kBias,       // around 0
  kConv,       // [C, 1, K]
  kALog,       // log of a decay rate
  kDtBias,     // inverse softplus of a step
  kSkip,       // D
  kRgLru,      // recurrent_param, inverse softplus of a decay rate
};

struct TensorRequest {
  std::string name;
  std::vector<int64_t> shape;
  TensorRole role = TensorRole::kLinear;
  // Each reads the tensor, whose shape and dtype have been checked.
  std::vector<std::function<Status(const StoredTensor&)>> consumers;
};

class WeightBinder {
 public:
  // A whole [rows, cols] matrix.
  void Matrix(const std::string& name,
              int64_t rows,
              int64_t cols,
              kernel::PackedMatrix* to,
              TensorRole role = TensorRole::kLinear);
  // Rows [begin, begin + rows) of a tensor seen as one matrix of `cols` columns; `shape` is the
  // whole tensor's.
  void MatrixRows(const std::string& name,
                  const std::vector<int64_t>& shape,
                  int64_t begin,
                  int64_t rows,
                  kernel::PackedMatrix* to);
  // Row r of `to` is row source(r) of a tensor of as many rows: what is interleaved comes apart.
  void MatrixReordered(const std::string& name,
                       int64_t rows,
                       int64_t cols,
                       std::function<int64_t(int64_t)> source,
                       kernel::PackedMatrix* to);
  // Rows [begin, begin + rows) of each run, one after another, as one matrix.
  struct Run {
    int64_t begin;
    int64_t rows;
  };
  void MatrixRuns(const std::string& name,
                  const std::vector<int64_t>& shape,
                  std::vector<Run> runs,
                  kernel::PackedMatrix* to);
  // `name`.weight and, if `bias`, `name`.bias.
  void LinearLayer(const std::string& name, int64_t rows, int64_t cols, bool bias, Linear* to);
  void Vector(const std::string& name, int64_t n, TensorRole role, std::vector<float>* to);
  // A tensor of several dimensions, seen as one row of values.
  void FlatVector(const std::string& name,
                  const std::vector<int64_t>& shape,
                  TensorRole role,
                  std::vector<float>* to);
  // The same with `map` applied to every value.
  void Vector(const std::string& name,
              int64_t n,
              TensorRole role,
              std::vector<float>* to,
              float (*map)(float));
  // [blocks, width, width] of x * W to the matrices of W x, one per block.
  void TransposedBlocks(const std::string& name,
                        int64_t blocks,
                        int64_t width,
                        std::vector<Linear>* to);
  // [blocks, width] to the biases of the same.
  void BlockBiases(const std::string& name, int64_t blocks, int64_t width, std::vector<Linear>* to);
  // [channels, 1, width] to [width][channels].
  void Conv(const std::string& name, int64_t channels, int64_t width, std::vector<float>* to);
  // The same for channels [begin, begin + channels) of `all`; the others come from elsewhere.
  struct ChannelRange {
    int64_t begin;
    int64_t all;
  };
  void ConvRange(const std::string& name,
                 int64_t channels,
                 int64_t width,
                 ChannelRange range,
                 std::vector<float>* to);
  // A norm's weight stored as its distance from 1.
  void NormPlusOne(const std::string& name, int64_t n, std::vector<float>* to);
  // A_log of shape [n] to -exp(A_log).
  void Decay(const std::string& name, int64_t n, std::vector<float>* to);
  // A_log of shape [..., state] to -exp(A_log) as [state][channels].
  void Decay2d(const std::string& name, const std::vector<int64_t>& shape, std::vector<float>* to);
  // A tensor that may be present and is not used.
  void Ignore(const std::string& name) { ignored_.push_back(name); }
  // All tensors whose names begin so ("mtp.", "model.visual."): parts of the published model that
  // are no part of this one.
  void IgnorePrefix(const std::string& prefix) { ignored_prefixes_.push_back(prefix); }
  // A tensor that is not there under its bound name may stand under the one in which `part` (its
  // first occurrence) reads `other`: ("model.", "model.language_model."), or an older spelling.
  // Several may apply to one name. The bound name is the one that counts for the fingerprint.
  void AlsoNamed(const std::string& part, const std::string& other) {
    BATON_CHECK(!part.empty());
    also_named_.emplace_back(part, other);
  }
  // Matrices may be stored as F8_E4M3 with scales per block beside them. Absent: they may not.
  void AllowBlockScales(std::optional<ScaleBlock> block) { block_scales_ = block; }

  // Where the tensors will come from, for architectures that choose between published forms by what
  // is there; null: from nowhere (generator).
  void LookInto(const Checkpoint* checkpoint) { checkpoint_ = checkpoint; }
  // Whether the checkpoint has `name` under any of its spellings.
  bool Has(const std::string& name) const;

  // In the order of binding.
  const std::vector<TensorRequest>& requests() const { return requests_; }

  // Every way in which `checkpoint` is not what was bound: a tensor missing, of another shape, of a
  // dtype that is no weight's, or one that nothing here would read. Empty: all is well.
  std::vector<std::string> Compare(const Checkpoint& checkpoint) const;

  // The stored tensor of a request under any of its names; null if there is none.
  const StoredTensor* Resolve(const Checkpoint& checkpoint, const TensorRequest& request) const;
  // The scales of `tensor` if it is one that they belong to, else null.
  const StoredTensor* ScalesOf(const Checkpoint& checkpoint, const StoredTensor& tensor) const;
  const std::optional<ScaleBlock>& block_scales() const { return block_scales_; }
  // How many tensors of `checkpoint` IgnorePrefix leaves unread, by prefix; for notes.
  std::vector<std::pair<std::string, int64_t>> IgnoredByPrefix(const Checkpoint& checkpoint) const;

 private:
  TensorRequest* Request(const std::string& name,
                         const std::vector<int64_t>& shape,
                         TensorRole role);
  bool IsIgnored(const std::string& name) const;
  // What is wrong with the tensor found for `request`; "" if nothing is.
  std::string Problem(const Checkpoint& checkpoint,
                      const TensorRequest& request,
                      const StoredTensor& tensor) const;

  std::vector<TensorRequest> requests_;
  std::map<std::string, size_t> index_;
  std::vector<std::string> ignored_;
  std::vector<std::string> ignored_prefixes_;
  std::vector<std::pair<std::string, std::string>> also_named_;
  std::optional<ScaleBlock> block_scales_;
  const Checkpoint* checkpoint_ = nullptr;
  std::map<std::vector<float>*, std::shared_ptr<std::once_flag>> made_room_;
};

// f32 values of a tensor of a weight dtype.
std::vector<float> Widen(const StoredTensor& tensor);

}  // namespace baton::model

#endif  // BATON_MODEL_WEIGHT_BINDER_H_
