// Package version reads the version of this program.
package version

import (
	"runtime"
	"runtime/debug"
)

// Info describes the build of this program.
type Info struct {
	Version  string `json:"version"`          // Version, or `(devel)`.
	Commit   string `json:"commit,omitempty"` // Commit of the build.
	Date     string `json:"date,omitempty"`   // Date of the commit.
	Modified bool   `json:"modified"`         // The working tree had uncommitted changes.
	Go       string `json:"go"`               // Version of Go.
	Platform string `json:"platform"`         // Operating system and architecture.
	OS       string `json:"os"`               // Operating system.
	Arch     string `json:"arch"`             // Architecture.
}

// Read returns the information that the Go linker wrote into the program.
func Read() Info {
	v := Info{Version: "(devel)", Go: runtime.Version(), Platform: runtime.GOOS + "/" + runtime.GOARCH, OS: runtime.GOOS, Arch: runtime.GOARCH}
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return v
	}
	if info.Main.Version != "" {
		v.Version = info.Main.Version
	}
	for _, set := range info.Settings {
		switch set.Key {
		case "vcs.revision":
			v.Commit = set.Value
		case "vcs.time":
			v.Date = set.Value
		case "vcs.modified":
			v.Modified = set.Value == "true"
		}
	}
	return v
}

// String returns the version on one line.
func (v Info) String() string {
	text := "sluice " + v.Version
	if v.Commit != "" {
		text += " commit " + v.Commit[:min(12, len(v.Commit))]
		if v.Modified {
			text += " (modified)"
		}
	}
	return text + " " + v.Go + " " + v.Platform
}
