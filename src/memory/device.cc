#include "memory/device.h"
