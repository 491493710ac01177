package telemetry

import (
	"net/url"
	"strconv"
	"strings"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"

	"github.com/sluice-llm/sluice"
	"github.com/sluice-llm/sluice/limits"
)

// route is where calls go.
type route struct{ account, lane string }

// subject is what all spans and values of a route have in common, made once.
type subject struct {
	name       string // of its spans
	attributes []attribute.KeyValue

	kinds         [numKinds]metric.MeasurementOption // by what a try met
	dimensions    [limits.NumDimensions]metric.MeasurementOption
	input, output metric.MeasurementOption
	plain         metric.MeasurementOption
}

func (o *OTel) subject(r route) *subject {
	r.lane = strings.Clone(r.lane) // it may be a piece of a line
	of := o.cfg.Service(r.account, r.lane)
	model := label(r.lane)
	s := &subject{name: strings.TrimSpace(of.Operation + " " + model), attributes: []attribute.KeyValue{
		attribute.String("gen_ai.operation.name", of.Operation),
		attribute.String("gen_ai.provider.name", label(of.Provider)),
		attribute.String("gen_ai.request.model", model),
	}}
	s.attributes = append(s.attributes, server(r.account)...)
	with := func(more ...attribute.KeyValue) metric.MeasurementOption {
		return metric.WithAttributeSet(attribute.NewSet(append(more, s.attributes...)...))
	}
	s.plain = with()
	s.input, s.output = with(attribute.String("gen_ai.token.type", "input")), with(attribute.String("gen_ai.token.type", "output"))
	s.kinds[sluice.OK] = s.plain
	for k := int(sluice.OK) + 1; k < numKinds; k++ {
		s.kinds[k] = with(errorType(sluice.Kind(k)))
	}
	for d := range s.dimensions {
		s.dimensions[d] = with(dimension(limits.Dimension(d)))
	}
	return s
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
