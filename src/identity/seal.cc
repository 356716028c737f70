#include "identity/seal.h"
