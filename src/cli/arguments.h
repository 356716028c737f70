// What happens to the command line before it is parsed: `--config FILE` is replaced by the flags
// of a YAML file, and flags of other engines are answered with Baton's name for them.
#ifndef BATON_CLI_ARGUMENTS_H_
#define BATON_CLI_ARGUMENTS_H_

#include <string>
#include <vector>

namespace baton::cli {

// Keys of the YAML file are long flags without dashes; lists repeat the flag, true and false choose
// --key and --no-key. Flags on the command line win over the file. Returns "" or what is wrong.
std::string ExpandArguments(std::vector<std::string>* arguments);

}  // namespace baton::cli

#endif  // BATON_CLI_ARGUMENTS_H_
