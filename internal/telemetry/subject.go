package telemetry

import (
	"net/url"
	"strconv"
	"strings"

	"go.opentelemetry.io/otel/attribute"

	"github.com/sluice-llm/sluice"
	"github.com/sluice-llm/sluice/limits"
)

// route is where calls go.
type route struct{ account, lane string }

// subject is what all spans of a route have in common, made once.
type subject struct {
	name       string // of its spans
	attributes []attribute.KeyValue
}

func (o *OTel) subject(r route) *subject {
	r.lane = strings.Clone(r.lane) // it may be a piece of a line
	of := o.cfg.Service(r.account, r.lane)
	model := label(r.lane)
	return &subject{name: strings.TrimSpace(of.Operation + " " + model), attributes: append([]attribute.KeyValue{
		attribute.String("gen_ai.operation.name", of.Operation),
		attribute.String("gen_ai.provider.name", label(of.Provider)),
		attribute.String("gen_ai.request.model", model),
	}, server(r.account)...)}
}

func errorType(k sluice.Kind) attribute.KeyValue { return attribute.String("error.type", k.String()) }

func dimension(d limits.Dimension) attribute.KeyValue {
	return attribute.String("sluice.limit.dimension", dimensionLabel(d))
}

// server is the host in the name of an account, which begins with its address.
func server(account string) []attribute.KeyValue {
	address, _, _ := strings.Cut(account, "#")
	u, err := url.Parse(address)
	if err != nil || u.Hostname() == "" {
		return nil
	}
	port := 443
	if u.Scheme == "http" {
		port = 80
	}
	if n, err := strconv.Atoi(u.Port()); err == nil {
		port = n
	}
	return []attribute.KeyValue{attribute.String("server.address", label(u.Hostname())), attribute.Int("server.port", port)}
}
