package gate_test

import (
	"testing"

	"github.com/sluice-llm/sluice/internal/gate"
)

func TestACallIsChargedWhatItDeclaresOrWhatItUses(t *testing.T) {
	cost := gate.Cost{Input: 300, MaxOutput: 1000}
	used := gate.Usage{Input: 300, CachedInput: 100, Output: 50}
	for _, c := range []struct {
		name                      string
		got                       gate.Vector
		tokens, input, outputs, n float64
	}{
		{"declared, reserved", gate.Reserve(gate.ChargeDeclared, cost), 1000, 300, 1000, 1},
		{"declared, settled", gate.Settled(gate.ChargeDeclared, false, cost, used), 1000, 300, 1000, 1},
		{"used, reserved", gate.Reserve(gate.ChargeActual, cost), 1300, 300, 1000, 1},
		{"used, reserved without max_tokens", gate.Reserve(gate.ChargeActual, gate.Cost{Input: 300}), 1324, 300, 1024, 1},
		{"used, settled", gate.Settled(gate.ChargeActual, false, cost, used), 250, 200, 50, 1},
		{"used, settled, cached input counts", gate.Settled(gate.ChargeActual, true, cost, used), 350, 300, 50, 1},
	} {
		v := c.got
		if v[gate.Tokens] != c.tokens || v[gate.TokensPerDay] != c.tokens || v[gate.InputTokens] != c.input ||
			v[gate.OutputTokens] != c.outputs || v[gate.Requests] != c.n || v[gate.RequestsPerDay] != c.n {
			t.Errorf("%s: %v", c.name, v)
		}
	}
}
