package cluster

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"path/filepath"
	"strings"
	"unicode"

	"github.com/sluice-llm/sluice/batch"
)

// maxJobName is the maximum length of a job's name, which is in tables and messages.
const maxJobName = 100

// CheckJobName rejects names of jobs that tables cannot show.
func CheckJobName(name string) error {
	if len(name) > maxJobName || strings.ContainsFunc(name, func(r rune) bool { return !unicode.IsGraphic(r) || unicode.IsSpace(r) }) {
		return fmt.Errorf("the maximum is %d characters, without spaces", maxJobName)
	}
	return nil
}

// JobOf returns the job of a run that reads the file input ("-" is standard input) and writes the file output. The name of the job depends
// on the path of the output and not on the host, so that the run can be resumed in another container.
func JobOf(input, output string, terms batch.Terms) (JobConfig, error) {
	cfg := JobConfig{Window: batch.Window, Settings: terms.Append(nil)}
	out, err := filepath.Abs(output)
	if err != nil {
		return cfg, err
	}
	if input != "-" {
		if input, err = filepath.Abs(input); err != nil {
			return cfg, err
		}
	}
	base := strings.Join(strings.Fields(strings.TrimSuffix(filepath.Base(out), filepath.Ext(out))), "-")
	cfg.Name = strings.ToValidUTF8(base, "") + "-" + digest(out)
	cfg.Input = digest(input, string(cfg.Settings))
	return cfg, nil
}

// digest returns a short hash of texts.
func digest(parts ...string) string {
	h := sha256.New()
	for _, part := range parts {
		fmt.Fprintf(h, "%d %s\n", len(part), part)
	}
	return hex.EncodeToString(h.Sum(nil)[:6])
}
