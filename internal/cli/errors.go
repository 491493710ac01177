package cli

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/sluice-llm/sluice/internal/fault"
	"github.com/sluice-llm/sluice/internal/term"
)

// nameFlag names the flag that sets the invalid field of a library's Config, if the error is about one.
func nameFlag(cmd *cobra.Command, e *fault.Error) {
	wrong, ok := errors.AsType[*fault.FieldError](e.Err)
	if !ok {
		return
	}
	field, cause := wrong.Field, wrong.Err
	e.Code, e.Hint = fault.Value, fault.HintOf(cause)
	if of := fault.Of(cause); of.Exit() == fault.ExitUsage {
		e.Code = of.Code
	}
	e.Err = cause
	cmd.Flags().VisitAll(func(f *pflag.Flag) {
		if row := rowOf(f); slices.Contains(strings.Fields(row.sets), field) {
			e.Err, e.Hint = fmt.Errorf("--%s: %w", f.Name, cause), cmp.Or(e.Hint, row.fix)
		}
	})
	if field == "Input" && e.Err == cause { // it is an argument
		e.Err, e.Hint = fmt.Errorf("input: %w", cause), cmp.Or(e.Hint, "name a file of JSON lines or a .csv table, compressed or not, or - for standard input")
	}
	e.Hint = cmp.Or(e.Hint, fmt.Sprintf("see %s --help", cmd.CommandPath()))
}

// report prints the error of a command, and returns the exit code of the program.
func report(s *term.Streams, cmd *cobra.Command, err error) int {
	if err == nil {
		return fault.ExitDone
	}
	if exit, ok := errors.AsType[fault.Exit](err); ok {
		return int(exit)
	}
	e := fault.Of(err)
	nameFlag(cmd, e)
	lines := []string{e.Error()}
	if e.List {
		lines = strings.Split(e.Error(), "\n")
	}
	prefix := "sluice: error: "
	for _, line := range lines {
		s.Errorf("%s%s\n", prefix, line)
		prefix = strings.Repeat(" ", len(prefix))
	}
	if hint := e.Advice(); hint != "" {
		s.Errorf("hint: %s\n", hint)
	}
	s.Errorf("code: %s\n", e.Code)
	return e.Exit()
}

// printReread prints what changed when settings were read again, or why nothing changed.
func printReread(s *term.Streams, what string, lines []string, err error) {
	if err != nil {
		warnWithHint(s, fmt.Errorf("%s are unchanged: %w", what, err))
	}
	for _, line := range lines {
		s.Errorf("sluice: %s\n", line)
	}
}

// warnWithHint prints err as a warning, with its hint.
func warnWithHint(s *term.Streams, err error) {
	s.Warn(err)
	if hinted, ok := errors.AsType[*fault.Error](err); ok && hinted.Hint != "" {
		s.Errorf("hint: %s\n", hinted.Hint)
	}
}
