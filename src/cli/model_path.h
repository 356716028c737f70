// Finds a model directory. Thread rule: pure function of the file system.
#ifndef BATON_CLI_MODEL_PATH_H_
#define BATON_CLI_MODEL_PATH_H_

#include <string>

#include "base/status.h"

namespace baton::cli {

// "" means the embedded demo model, looked for beside the build tree (models/demo) and under the
// installation prefix (share/baton/models/demo). NotFound says where it looked and what to do.
StatusOr<std::string> ResolveModel(const std::string& model);

}  // namespace baton::cli

#endif  // BATON_CLI_MODEL_PATH_H_
