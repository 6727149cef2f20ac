//! Modules of the machine's kernel, which lie in `/modules`.

use std::ffi::CStr;
use std::fs;

use anyhow::{Context as _, Result};

/// Loads a module, with the parameters that it takes. One that is there already is no error.
pub(crate) fn load(name: &str, parameters: &CStr) -> Result<()> {
    let image = fs::read(format!("/modules/{name}.ko")).with_context(|| format!("module {name}"))?;
    match rustix::system::init_module(&image, parameters) {
        Ok(()) | Err(rustix::io::Errno::EXIST) => Ok(()),
        Err(error) => Err(error).with_context(|| format!("module {name}")),
    }
}

/// Loads those of networks, in the order that they need each other.
pub(crate) fn load_networks() -> Result<()> {
    for name in koord_e2e::machine::MODULES.iter().filter(|name| **name != "brd") {
        load(name, if *name == "dummy" { c"numdummies=0" } else { c"" })?;
    }
    Ok(())
}
