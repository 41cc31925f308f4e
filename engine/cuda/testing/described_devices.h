#pragma once

#include <string_view>

namespace rematch::cuda::testing {

// Properties that a handle would ask the device for, in cuDNN's keys. Clocks and sizes guide the
// choice among engines; whether an engine can be used follows from the architecture.
inline constexpr std::string_view kH200 =
    R"({"deviceName": "H200", "deviceVer": 900, "driverVer": 13000,
  "cudaDeviceId": 0, "pciDeviceId": 0, "isTccDriver": 0, "supportCoopLaunch": 1,
  "multiProcessorCount": 132, "smClockRateKHz": 1980000, "memClockRateKHz": 3201000,
  "totalGlobalMem": 150109880320, "l2CacheSize": 62914560, "warpSize": 32,
  "maxGridSize": [2147483647, 65535, 65535], "maxBlockSize": [1024, 1024, 64],
  "maxThreadsPerBlock": 1024, "maxThreadsPerSM": 2048, "maxCtasPerSM": 32,
  "regsPerBlock": 65536, "maxRegistersPerSM": 65536, "maxSharedMemoryPerBlock": 49152,
  "maxSharedMemoryPerBlockOptin": 232448, "reservedSharedMemoryPerBlock": 1024})";
inline constexpr std::string_view kA100 =
    R"({"deviceName": "A100", "deviceVer": 800, "driverVer": 13000,
  "cudaDeviceId": 0, "pciDeviceId": 0, "isTccDriver": 0, "supportCoopLaunch": 1,
  "multiProcessorCount": 108, "smClockRateKHz": 1410000, "memClockRateKHz": 1593000,
  "totalGlobalMem": 85094825984, "l2CacheSize": 41943040, "warpSize": 32,
  "maxGridSize": [2147483647, 65535, 65535], "maxBlockSize": [1024, 1024, 64],
  "maxThreadsPerBlock": 1024, "maxThreadsPerSM": 2048, "maxCtasPerSM": 32,
  "regsPerBlock": 65536, "maxRegistersPerSM": 65536, "maxSharedMemoryPerBlock": 49152,
  "maxSharedMemoryPerBlockOptin": 166912, "reservedSharedMemoryPerBlock": 1024})";

}  // namespace rematch::cuda::testing
