"""The version of Headway, which the build reads, too. Looking it up among the installed packages takes longer."""

VERSION = "0.1.0"
