package cli

import (
	"fmt"
	"runtime"
	"runtime/debug"

	"github.com/spf13/cobra"

	"github.com/sluice-llm/sluice/internal/term"
)

// version is what is known of the binary.
type version struct {
	Version  string `json:"version"`          // Version, or `(devel)`.
	Commit   string `json:"commit,omitempty"` // Commit of the build.
	Date     string `json:"date,omitempty"`   // Date of the commit.
	Modified bool   `json:"modified"`         // The working tree had uncommitted changes.
	Go       string `json:"go"`               // Version of Go.
	Platform string `json:"platform"`         // Operating system and architecture.
	OS       string `json:"os"`               // Operating system.
	Arch     string `json:"arch"`             // Architecture.
}

// newVersion returns the command that says which Sluice this is.
func newVersion(s *term.Streams) *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "version",
		Short: "Print the version",
		Example: `  sluice version
  sluice version --json`,
		Args: none,
		RunE: func(*cobra.Command, []string) error {
			if asJSON {
				return s.JSON(buildVersion())
			}
			return printVersion(s)
		},
	}
	define(cmd, flagGroup{"Output", []flag{{name: "json", field: &asJSON, help: "Print one JSON document", common: true}}})
	return cmd
}

// printVersion prints which Sluice this is, on one line.
func printVersion(s *term.Streams) error {
	_, err := fmt.Fprintln(s.Out, buildVersion())
	return err
}

// buildVersion reads what the Go linker wrote into the binary.
func buildVersion() version {
	v := version{Version: "(devel)", Go: runtime.Version(), Platform: runtime.GOOS + "/" + runtime.GOARCH, OS: runtime.GOOS, Arch: runtime.GOARCH}
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

// String is the version on one line.
func (v version) String() string {
	text := "sluice " + v.Version
	if v.Commit != "" {
		text += " commit " + v.Commit[:min(12, len(v.Commit))]
		if v.Modified {
			text += " (modified)"
		}
	}
	return text + " " + v.Go + " " + v.Platform
}
