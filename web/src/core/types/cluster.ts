/**
 * JSON of the API, as `holdfast … -o json` prints it: the cluster as a whole, the user, and what changed.
 * Times are RFC 3339 in UTC, measured spans are seconds.
 */

export interface Attention {
  kind: string;
  subject: string;
  message: string;
  since: string | null;
}

export interface Status {
  cluster: string;
  version: string;
  started: string;
  epoch: number;
  hosts: Record<string, number>;
  gpus: Record<string, number>;
  jobs: Record<string, number>;
  agents: Record<string, number>;
  attention: Attention[];
  attentionMore: number;
  /** The message of the day. */
  motd: { text: string; by: string; time: string } | null;
  /** Of the controller: own and ca. */
  certificates: { name: string; end: string | null }[];
  deliveries: { waiting: number; delivered: number; failing: number; givenUp: { to: string; count: number; reason: string }[] } | null;
  /** Where several controllers share a database. */
  leadership: Leadership | null;
  /** Labels that name the levels of the network, the outermost first; absent from an older controller. */
  topology?: string[];
}

export interface Leadership {
  database: string;
  leader: string;
  /** What a failover of the database may lose; empty where nothing. */
  risk: string;
  standbyDetails: { machine: string; behindEvents: number; differingSettings: string }[];
}

export interface Me {
  cluster: string;
  user: { name: string; grants: { project: string; role: string }[]; accounts: string[]; configuredAdmin: boolean };
  certificateEnd: string | null;
}

/** What changed since the last entry of `/v1/changes`; `all`: fetch everything shown again. */
export interface Changes {
  cursor: number;
  jobs: string[];
  hosts: string[];
  all: boolean;
  /** Schedules or templates too; absent from an older controller. */
  plans?: boolean;
}
