package batch_test

import (
	"errors"
	"os"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-llm/sluice/batch"
	"github.com/sluice-llm/sluice/internal/batchjob"
)

// TestPartsWhoseFilesAreGoneAreSentAgainOnlyIfAskedFor has the file of a pending part removed.
func TestPartsWhoseFilesAreGoneAreSentAgainOnlyIfAskedFor(t *testing.T) {
	for _, cancel := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			f := newFiles(t, chats(30))
			cfg, sent := f.viaConfig(t, hour())
			cfg.Provider.Batches.Requests = 20
			abandon(t, cfg, 10*time.Minute)
			dir := f.out + batch.BatchesSuffix
			entries, err := os.ReadDir(dir)
			name := dir + "/" + entries[0].Name()
			if err := errors.Join(err, os.Remove(name)); err != nil {
				t.Fatal(err)
			}
			cfg.Batches.Cancel = cancel
			_, err = run(t, cfg)
			wrong, ok := errors.AsType[*batch.FieldError](err)
			missing, named := errors.AsType[*batchjob.FileError](err)
			if !ok || wrong.Field != "Output" || !named || missing.Path != name || !strings.Contains(missing.Hint(), "--cancel --redo lost") {
				t.Fatalf("error %v", err)
			}
			want := 3 // batches
			if cfg.Batches.Resubmit = true; cancel {
				want = 2
			}
			if rep, err := run(t, cfg); err != nil || (rep.Left() > 0) != cancel || sent.count(batchMade) != want {
				t.Fatalf("%+v, %v, %d batches", rep.Report, err, sent.count(batchMade))
			}
			f.tidy(t)
			cfg.Batches = nil
			if rep, err := run(t, cfg); err != nil || rep.Left() != 0 {
				t.Errorf("live: %+v, %v", rep.Report, err)
			}
		})
	}
}
