package gate_test

import (
	"testing"

	"github.com/sluice-llm/sluice/internal/gate"
	"github.com/sluice-llm/sluice/limits"
)

func TestACallIsChargedWhatItDeclaresOrWhatItUses(t *testing.T) {
	cost := limits.Cost{Input: 300, MaxOutput: 1000}
	used := limits.Usage{Input: 300, CachedInput: 100, Output: 50}
	for _, c := range []struct {
		name                      string
		got                       limits.Vector
		tokens, input, outputs, n float64
	}{
		{"declared, reserved", gate.Reserve(limits.ChargeDeclared, cost), 1000, 300, 1000, 1},
		{"declared, settled", gate.Settled(limits.ChargeDeclared, false, cost, used), 1000, 300, 1000, 1},
		{"used, reserved", gate.Reserve(limits.ChargeActual, cost), 1300, 300, 1000, 1},
		{"used, reserved without max_tokens", gate.Reserve(limits.ChargeActual, limits.Cost{Input: 300}), 1324, 300, 1024, 1},
		{"used, settled", gate.Settled(limits.ChargeActual, false, cost, used), 250, 200, 50, 1},
		{"used, settled, cached input counts", gate.Settled(limits.ChargeActual, true, cost, used), 350, 300, 50, 1},
	} {
		v := c.got
		if v[limits.Tokens] != c.tokens || v[limits.TokensPerDay] != c.tokens || v[limits.InputTokens] != c.input ||
			v[limits.OutputTokens] != c.outputs || v[limits.Requests] != c.n || v[limits.RequestsPerDay] != c.n {
			t.Errorf("%s: %v", c.name, v)
		}
	}
}
