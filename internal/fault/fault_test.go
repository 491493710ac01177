package fault_test

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"syscall"
	"testing"

	"github.com/sluice-llm/sluice/internal/fault"
)

// coded is an error of a library that carries its code and hint.
type coded struct{}

func (coded) Error() string     { return "taken" }
func (coded) FaultCode() string { return string(fault.InUse) }
func (coded) Hint() string      { return "wait" }

func TestAnErrorCarriesItsCodeAndHint(t *testing.T) {
	full := &fs.PathError{Op: "write", Path: "x", Err: syscall.ENOSPC}
	missing := &fs.PathError{Op: "open", Path: "y", Err: fs.ErrNotExist}
	for _, c := range []struct {
		err  error
		code fault.Code
		text string
		hint string
		exit int
	}{
		{fmt.Errorf("out: %w", coded{}), fault.InUse, "out: taken", "wait", fault.ExitUsage},
		{fmt.Errorf("run: %w", context.Canceled), fault.Interrupted, "interrupted", "resume with the same command", fault.ExitInterrupted},
		{errors.New("odd"), fault.Failed, "odd", "", fault.ExitFailed},
		{fault.New(fault.Price, errors.New("no price"), "set %s", "--price"), fault.Price, "no price", "set --price", fault.ExitUsage},
		{&fs.PathError{Op: "open", Path: "x", Err: fs.ErrNotExist}, fault.File, "x does not exist", "name a file that exists, or a directory that you can write to", fault.ExitUsage},
		{&fs.PathError{Op: "open", Path: "no/x", Err: fs.ErrNotExist}, fault.File, "no/x does not exist, nor does its directory", "name a file that exists, or a directory that you can write to", fault.ExitUsage},
		{errors.Join(full, missing), fault.Disk, "x cannot be written, because the disk is full\nopen y: file does not exist",
			"free space on the disk, then resume with the same command", fault.ExitFailed},
	} {
		e := fault.Of(c.err)
		if e.Code != c.code || e.Error() != c.text || e.Advice() != c.hint || e.Exit() != c.exit {
			t.Errorf("%v: code %s, text %q, hint %q, exit code %d", c.err, e.Code, e.Error(), e.Advice(), e.Exit())
		}
	}
}

func TestTheCatalogueHasEachCodeOnce(t *testing.T) {
	all := fault.Catalogue()
	if !slices.IsSortedFunc(all, func(a, b fault.Entry) int {
		if a.Code < b.Code {
			return -1
		}
		return 1
	}) {
		t.Error("the codes are not in order, or not unique")
	}
	for _, e := range all {
		if e.Cause == "" || e.Exit == 0 || e.Fix == "" && e.Code != fault.Failed {
			t.Errorf("%s has no cause, exit code or fix", e.Code)
		}
	}
}
