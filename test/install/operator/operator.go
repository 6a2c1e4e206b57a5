// Package operator imports the types of the Prometheus operator for the tests of the chart.
package operator

import _ "github.com/prometheus-operator/prometheus-operator/pkg/apis/monitoring/v1" // definitions are made of them
