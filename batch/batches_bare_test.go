package batch_test

import (
	"errors"
	"os"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-llm/sluice/batch"
)

// TestPartsWhoseFilesAreGoneAreLeftUnlessTheyAreToBeSentAgain has the files of a pending part removed.
func TestPartsWhoseFilesAreGoneAreLeftUnlessTheyAreToBeSentAgain(t *testing.T) {
	for _, c := range []struct {
		name string
		off  bool
	}{{"sent again", false}, {"given up", true}} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := newFiles(t, chats(30))
				cfg, sent := f.viaConfig(t, hour())
				cfg.Provider.Batches.Requests = 20
				abandon(t, cfg, 10*time.Minute)
				dir := f.out + batch.BatchesSuffix
				entries, err := os.ReadDir(dir)
				if err != nil {
					t.Fatal(err)
				}
				first := entries[0].Name()[:12]
				for _, e := range entries {
					if name := e.Name(); strings.HasPrefix(name, first) {
						os.Remove(dir + "/" + name)
					}
				}
				for _, cancel := range []bool{false, true} { // neither may take a line for one that is in no part
					cfg.Batches.Cancel = cancel
					_, err := run(t, cfg)
					lost, ok := errors.AsType[*batch.LostError](err)
					if !ok || len(lost.Batches) > 0 || lost.Lines != lost.BareLines || !strings.Contains(err.Error(), dir) ||
						!strings.Contains(err.Error(), "(batch batch_") || !strings.Contains(lost.Hint(), "--cancel --redo lost") {
						t.Fatalf("cancel %v: %v", cancel, err)
					}
					if named := slices.ContainsFunc(lost.Bare, func(s string) bool { return strings.Contains(s, first) }); !named {
						t.Errorf("%q do not name %s", lost.Bare, first)
					}
				}
				if n := sent.count(batchMade); n != 2 {
					t.Fatalf("%d batches, want 2", n)
				}
				cfg.Batches.Resubmit, cfg.Batches.Cancel = true, c.off
				rep, err := run(t, cfg)
				if err != nil || !c.off && rep.Left() != 0 || c.off && (rep.Left() == 0 || sent.count(batchMade) != 2) {
					t.Fatalf("%+v, %v, %d batches", rep.Report, err, sent.count(batchMade))
				}
				f.tidy(t)
				cfg.Batches = nil
				if rep, err := run(t, cfg); err != nil || rep.Left() != 0 {
					t.Errorf("live: %+v, %v", rep.Report, err)
				}
			})
		})
	}
}
