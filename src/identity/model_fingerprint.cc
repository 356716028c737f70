#include "identity/model_fingerprint.h"
