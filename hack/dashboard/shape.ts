// The dashboard by Grafana's own types, narrowed to the panels of Keelson's dashboard: an unknown field,
// or one of another type, is a compiler error.
import type { Dashboard, DataQuery, DataSourceRef, GraphFieldConfig, Panel, RowPanel } from '@grafana/schema';
import type { Options as StatOptions } from '@grafana/schema/dist/esm/raw/composable/stat/panelcfg/x/StatPanelCfg_types.gen';
import type { Options as TimeSeriesOptions } from '@grafana/schema/dist/esm/raw/composable/timeseries/panelcfg/x/TimeSeriesPanelCfg_types.gen';

// JSON has no enums, so enum types are replaced by their values.
type Plain<T> = T extends string
  ? `${T}`
  : T extends (infer U)[]
    ? Plain<U>[]
    : T extends object
      ? { [K in keyof T]: Plain<T[K]> }
      : T;

// Grafana's query to Prometheus. Its package has no types for it.
interface Query extends Pick<DataQuery, 'refId' | 'hide'> {
  datasource: DataSourceRef;
  editorMode: 'code' | 'builder';
  expr: string;
  instant?: boolean;
  range: boolean;
  legendFormat: string;
}

interface Known<Type extends string, Options, Custom> extends Omit<Panel, 'type' | 'options' | 'targets' | 'fieldConfig'> {
  type: Type;
  options: Options;
  targets: Query[];
  fieldConfig: {
    defaults: Omit<NonNullable<Panel['fieldConfig']>['defaults'], 'custom'> & { custom?: Custom };
    overrides: NonNullable<Panel['fieldConfig']>['overrides'];
  };
}

type Ours =
  | RowPanel
  | Known<'timeseries', TimeSeriesOptions, GraphFieldConfig>
  | Known<'stat', StatOptions, never>;

export type Shape = Plain<Omit<Dashboard, 'panels' | 'annotations'>> & {
  panels: Plain<Ours>[];
  // An annotation has a Prometheus query.
  annotations: { list: (Plain<NonNullable<NonNullable<Dashboard['annotations']>['list']>[number]> & { expr: string; titleFormat: string; step: string })[] };
};
