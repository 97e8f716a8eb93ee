//! The fuzz targets of genstore are binaries: see `run.sh`.
