package provider_test

import (
	"testing"

	"github.com/sluice-llm/sluice/provider"
)

func TestSuggestionsNameEachOnce(t *testing.T) {
	if got := provider.Nearest("rmp", []string{"rpm", "rpm"}); len(got) != 1 {
		t.Errorf("%q", got)
	}
}
