package proc

import (
	"fmt"
	"strings"

	"github.com/sluice-llm/sluice/internal/fault"
)

// mostBlocked is how many stages a BlockedError names.
const mostBlocked = 10

// BlockedError is returned by a run that did all it could: some stages need one that failed or was not done.
type BlockedError struct{ Blocked []Blocked }

// Error names what did not run, and why.
func (e *BlockedError) Error() string {
	var b strings.Builder
	for i, one := range e.Blocked {
		if i == mostBlocked {
			fmt.Fprintf(&b, "\nand %d more", len(e.Blocked)-i)
			break
		}
		if i > 0 {
			b.WriteByte('\n')
		}
		b.WriteString(one.String())
	}
	return b.String()
}

// Hint says what can be done.
func (e *BlockedError) Hint() string {
	return "find the cause in result.json and stderr.log of the failed items, then retry them with --redo failed"
}

// FaultCode is the code of the error in the catalogue of errors.
func (e *BlockedError) FaultCode() string { return fault.Blocked }
