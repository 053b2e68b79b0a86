; put a clean plate in cabinet.
; The sink and the counter are at one place; a knife and bread allow slicing.
(define (problem mini_clean)
(:domain alfred)
(:objects
    agent1 - agent
    Plate_bar_1 Cup_bar_1 Knife_bar_1 Bread_bar_1 - object
    CounterTop_bar_1 Sink_bar_1_bar_SinkBasin Cabinet_bar_1 - receptacle
    loc_bar_0 loc_bar_1 loc_bar_2 - location
    PlateType CupType KnifeType BreadType - otype
    CounterTopType SinkBasinType CabinetType - rtype)
(:init
    (atLocation agent1 loc_bar_0)
    (receptacleAtLocation CounterTop_bar_1 loc_bar_1) (receptacleType CounterTop_bar_1 CounterTopType)
    (receptacleAtLocation Sink_bar_1_bar_SinkBasin loc_bar_1) (receptacleType Sink_bar_1_bar_SinkBasin SinkBasinType)
    (receptacleAtLocation Cabinet_bar_1 loc_bar_2) (receptacleType Cabinet_bar_1 CabinetType) (openable Cabinet_bar_1)
    (objectType Plate_bar_1 PlateType) (pickupable Plate_bar_1) (cleanable Plate_bar_1)
    (objectType Cup_bar_1 CupType) (pickupable Cup_bar_1) (cleanable Cup_bar_1)
    (objectType Knife_bar_1 KnifeType) (pickupable Knife_bar_1) (cleanable Knife_bar_1)
    (objectType Bread_bar_1 BreadType) (pickupable Bread_bar_1) (sliceable Bread_bar_1)
    (isReceptacleObject Plate_bar_1) (isReceptacleObject Cup_bar_1) (inReceptacleObject Bread_bar_1 Plate_bar_1)
    (inReceptacle Plate_bar_1 CounterTop_bar_1) (objectAtLocation Plate_bar_1 loc_bar_1)
    (inReceptacle Bread_bar_1 CounterTop_bar_1) (objectAtLocation Bread_bar_1 loc_bar_1)
    (inReceptacle Knife_bar_1 CounterTop_bar_1) (objectAtLocation Knife_bar_1 loc_bar_1)
    (inReceptacle Cup_bar_1 Cabinet_bar_1) (objectAtLocation Cup_bar_1 loc_bar_2)
    (canContain CounterTopType PlateType) (canContain CounterTopType CupType)
    (canContain CounterTopType KnifeType) (canContain CounterTopType BreadType)
    (canContain SinkBasinType PlateType) (canContain SinkBasinType CupType) (canContain SinkBasinType KnifeType)
    (canContain CabinetType PlateType) (canContain CabinetType CupType))
(:goal (and (exists (?r - receptacle) (exists (?o - object)
    (and (cleanable ?o) (objectType ?o PlateType) (receptacleType ?r CabinetType) (isClean ?o)
         (inReceptacle ?o ?r)))))))
