package cli

import (
	"fmt"
	"slices"
	"strings"

	"github.com/sluice-llm/sluice/batch"
	"github.com/sluice-llm/sluice/internal/proc/agents"
	"github.com/sluice-llm/sluice/internal/stress"
)

// wordsOf are the words that flags of that name take; nil of a flag that takes others.
func wordsOf(flag string) []string {
	switch flag {
	case "progress":
		return progressWays()
	case "sync":
		return []string{"each", "interval", "none"}
	case "order":
		return []string{"completion", "input"}
	case "changed":
		return []string{"redo", "keep"}
	case "format":
		return []string{"jsonl", "text", "csv", "tsv"}
	case "via":
		return []string{batch.ViaLive.String(), batch.ViaBatchAPI.String(), batch.ViaAuto.String()}
	case "prefer":
		return []string{"soonest", "cost"}
	case "fail-on": // several, with commas between
		return []string{"length", "content_filter", "refusal", "empty"}
	case "mode":
		return []string{modeAuto, modeSweep}
	case "charge":
		return []string{"declared", "actual"}
	case "retry-after":
		return []string{"seconds", "ms", "date", "none"}
	case "priority":
		return []string{"low", "normal", "high", "critical"}
	case "level":
		return stress.Levels()
	case "cli":
		return agents.Names()
	}
	return nil
}

// checkWord refuses a value that is none of the flag's words.
func checkWord(flag, value string) error {
	if known := wordsOf(flag); !slices.Contains(known, value) {
		return usageError(fmt.Errorf("--%s %s is not known", flag, value), "it is one of %s", strings.Join(known, ", "))
	}
	return nil
}

// checkWordIfAny is checkWord for a flag that may be left empty.
func checkWordIfAny(flag, value string) error {
	if value == "" {
		return nil
	}
	return checkWord(flag, value)
}
