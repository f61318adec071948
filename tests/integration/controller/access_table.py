"""Who may make each call: the promises of ``docs/admins/access.md``, spelled out and tried one by one.

The job that the calls are about is owen's, in project vision. A host may fetch the packaged code of its own work
and of no other; no work here has any.
"""

from __future__ import annotations

CALLERS = {
    "none": "nobody: no certificate",
    "wrong-ca": "a certificate of another CA",
    "unknown": "a certificate of this cluster for a user that nobody has added",
    "void": "a user who was removed",
    "viewer": "a viewer in vision",
    "elsewhere": "a viewer in another project only",
    "other": "a user in vision, whose job it isn't",
    "owner": "owen, a user in vision",
    "host": "the agent of host-0",
    "host-b": "the agent of host-1, which has nothing to do with the job",
    "admin": "an admin of everything",
}
MEANING = {
    "-": "no connection: TLS refuses the certificate",
    "U": "UNAUTHENTICATED",
    "D": "PERMISSION_DENIED",
    "N": "NOT_FOUND: for this caller there is no such job",
    "+": "let through",
}
TABLE = """
                                        none wrong-ca unknown void viewer elsewhere other owner host host-b admin
JobService/CreateJob                    -    -        D       U    D      D         +     +     D    D      +
JobService/DryRunJob                    -    -        D       U    D      D         +     +     D    D      +
JobService/GetJob                       -    -        D       U    +      N         +     +     D    D      +
JobService/GetGoodput                   -    -        D       U    +      N         +     +     D    D      +
JobService/GetSeries                    -    -        D       U    +      N         +     +     D    D      +
JobService/ListJobs                     -    -        D       U    +      +         +     +     D    D      +
JobService/CancelJob                    -    -        D       U    D      N         D     +     D    D      +
JobService/RestartJob                   -    -        D       U    D      N         D     +     D    D      +
JobService/PauseJob                     -    -        D       U    D      N         D     +     D    D      +
JobService/ResumeJob                    -    -        D       U    D      N         D     +     D    D      +
JobService/DeleteJob                    -    -        D       U    D      N         D     +     D    D      +
JobService/WatchJob                     -    -        D       U    +      N         +     +     D    D      +
JobService/StreamLogs                   -    -        D       U    +      N         +     +     D    D      +
JobService/WriteTerminal                -    -        D       U    D      N         D     +     D    D      D
JobService/OpenShell                    -    -        D       U    D      N         D     +     D    D      D
JobService/WriteShell                   -    -        D       U    D      N         D     +     D    D      D
JobService/InjectFault                  -    -        D       U    D      N         D     +     D    D      +
HangService/HoldJob                     -    -        D       U    D      N         D     +     D    D      +
HangService/TakeStacks                  -    -        D       U    D      N         D     +     D    D      +
HangService/GetHangEvidence             -    -        D       U    +      N         +     +     D    D      +
HangService/RecordSamples               -    -        D       U    +      N         +     +     D    D      +
HostService/ListHosts                   -    -        D       U    +      +         +     +     D    D      +
HostService/GetHost                     -    -        D       U    +      +         +     +     D    D      +
HostService/ListHostEvents              -    -        D       U    +      +         +     +     D    D      +
HostService/WatchHosts                  -    -        D       U    +      +         +     +     D    D      +
HostService/Cordon                      -    -        D       U    D      D         D     D     D    D      +
HostService/Uncordon                    -    -        D       U    D      D         D     D     D    D      +
HostService/Drain                       -    -        D       U    D      D         D     D     D    D      +
HostService/FenceHost                   -    -        D       U    D      D         D     D     D    D      +
HostService/DismissWork                 -    -        D       U    D      D         D     D     D    D      +
HostService/CancelMaintenance           -    -        D       U    D      D         D     D     D    D      +
HostService/CheckHost                   -    -        D       U    D      D         D     D     D    D      +
ClusterService/GetStatus                -    -        D       U    +      +         +     +     D    D      +
ClusterService/SumGoodput               -    -        D       U    +      +         +     +     D    D      +
ClusterService/ListShares               -    -        D       U    +      +         +     +     D    D      +
ClusterService/SetShare                 -    -        D       U    D      D         D     D     D    D      +
ClusterService/SetGuarantee             -    -        D       U    D      D         D     D     D    D      +
ClusterService/ListQuotas               -    -        D       U    +      +         +     +     D    D      +
ClusterService/SetQuota                 -    -        D       U    D      D         D     D     D    D      +
ClusterService/ListReservations         -    -        D       U    +      +         +     +     D    D      +
ClusterService/CreateReservation        -    -        D       U    D      D         D     D     D    D      +
ClusterService/DeleteReservation        -    -        D       U    D      D         D     D     D    D      +
ClusterService/WatchChanges             -    -        D       U    +      +         +     +     D    D      +
ClusterService/GetMetrics               -    -        D       U    D      D         D     D     D    D      +
BundleService/GetBundle                 -    -        D       U    D      D         +     +     D    D      +
BundleService/UploadBundle              -    -        D       U    D      D         +     +     D    D      +
BundleService/FetchBundle               -    -        D       U    D      D         D     D     D    D      D
ScheduleService/CreateSchedule          -    -        D       U    D      D         +     +     D    D      +
ScheduleService/ListSchedules           -    -        D       U    +      +         +     +     D    D      +
ScheduleService/PauseSchedule           -    -        D       U    D      D         +     +     D    D      +
ScheduleService/ResumeSchedule          -    -        D       U    D      D         +     +     D    D      +
ScheduleService/RemoveSchedule          -    -        D       U    D      D         +     +     D    D      +
ScheduleService/CreateTemplate          -    -        D       U    D      D         +     +     D    D      +
ScheduleService/ListTemplates           -    -        D       U    +      +         +     +     D    D      +
ScheduleService/RemoveTemplate          -    -        D       U    D      D         +     +     D    D      +
SecretService/SetSecret                 -    -        D       U    D      D         +     +     D    D      +
SecretService/ListSecrets               -    -        D       U    D      D         +     +     D    D      +
SecretService/RemoveSecret              -    -        D       U    D      D         +     +     D    D      +
AgentService/Session                    -    -        D       U    D      D         D     D     +    +      D
AgentService/Transfer                   -    -        D       U    D      D         D     D     +    +      D
AccessService/GetCaller                 -    -        D       U    +      +         +     +     D    D      +
AccessService/SetMotd                   -    -        D       U    D      D         D     D     D    D      +
AccessService/AddUser                   -    -        D       U    D      D         D     D     D    D      +
AccessService/MapUser                   -    -        D       U    D      D         D     D     D    D      +
AccessService/ListUsers                 -    -        D       U    D      D         D     D     D    D      +
AccessService/RemoveUser                -    -        D       U    D      D         D     D     D    D      +
AccessService/CreateToken               -    -        D       U    D      D         D     D     D    D      +
AccessService/RemoveHost                -    -        D       U    D      D         D     D     D    D      +
AccessService/ReadAudit                 -    -        D       U    D      D         D     D     D    D      +
AccessService/ExportAudit               -    -        D       U    D      D         D     D     D    D      +
WebService/CreateLogin                  -    -        D       U    +      +         +     +     D    D      +
WebService/ListSessions                 -    -        D       U    +      +         +     +     D    D      +
WebService/EndSession                   -    -        D       U    +      +         +     +     D    D      +
WebService/Relay                        -    -        D       U    +      +         +     +     D    D      +
EnrolmentService/GetAuthority           +    +        +       +    +      +         +     +     +    +      +
EnrolmentService/Enrol                  +    +        +       +    +      +         +     +     +    +      +
EnrolmentService/Renew                  +    +        +       +    +      +         +     +     +    +      +
EnrolmentService/GetProvider            +    +        +       +    +      +         +     +     +    +      +
EnrolmentService/SignIn                 +    +        +       +    +      +         +     +     +    +      +
Health/Check                            -    -        +       U    +      +         +     +     +    +      +
Health/List                             -    -        +       U    +      +         +     +     +    +      +
Health/Watch                            -    -        +       U    +      +         +     +     +    +      +
ServerReflection/ServerReflectionInfo   -    -        D       U    +      +         +     +     D    D      +
"""


def expected() -> dict[str, dict[str, str]]:
    """By call and caller."""
    head, *rows = TABLE.strip("\n").splitlines()
    callers = head.split()
    assert callers == list(CALLERS)
    cells = {}
    for row in rows:
        call, *marks = row.split()
        assert len(marks) == len(callers) and set(marks) <= set(MEANING), row
        cells[call] = dict(zip(callers, marks, strict=True))
    return cells
