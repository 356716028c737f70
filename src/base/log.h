// Structured one-line logging to stderr through spdlog. The first function that names an error
// logs it; callers do not.
#ifndef BATON_BASE_LOG_H_
#define BATON_BASE_LOG_H_

#include <string_view>

namespace baton {

enum class LogLevel { kDebug, kInfo, kWarning, kError };

// Sets the least level that is printed. Called by main() only.
void SetLogLevel(LogLevel level);
void Log(LogLevel level, std::string_view message);

inline void LogInfo(std::string_view m) { Log(LogLevel::kInfo, m); }
inline void LogWarning(std::string_view m) { Log(LogLevel::kWarning, m); }
inline void LogError(std::string_view m) { Log(LogLevel::kError, m); }

}  // namespace baton

#endif  // BATON_BASE_LOG_H_
