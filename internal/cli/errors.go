package cli

import (
	"errors"
	"strings"

	"github.com/sluice-llm/sluice/internal/fault"
	"github.com/sluice-llm/sluice/internal/term"
)

// failed returns the error of a command, with a code.
func failed(err error) error {
	if err == nil || fault.Is[fault.Exit](err) {
		return err
	}
	return fault.Of(err)
}

// report prints an error, and returns the exit code of the program.
func report(s *term.Streams, err error) int {
	if err == nil {
		return fault.ExitDone
	}
	if exit, ok := errors.AsType[fault.Exit](err); ok {
		return int(exit)
	}
	e, ok := errors.AsType[*fault.Error](err)
	if !ok { // from cobra: a wrong argument or an unknown command
		e = &fault.Error{Code: fault.Usage, Err: err}
	}
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
	s.Errorf("code: %s\n", string(e.Code))
	return e.Exit()
}
