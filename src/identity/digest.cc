#include "identity/digest.h"
